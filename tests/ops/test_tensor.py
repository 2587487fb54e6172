"""Arithmetic, comparisons and reductions on values: one number worked by hand for each."""

import pytest

from flowrl import ops
from tests.ops.evaluated import evaluate

ELEMENTWISE = {
    "add": (lambda x, r: x[1] + 0.5, [1.5, -1.5]),
    "add from the left": (lambda x, r: 0.5 + x[1], [1.5, -1.5]),
    "sub from the left": (lambda x, r: 1.0 - x[1], [0.0, 3.0]),
    "mul of a prompt and its samples": (lambda x, r: x[1] * x[2], [1.0, 3.0, -10.0]),
    "div of samples by their tokens": (lambda x, r: x[2] / x[3], [1.0, 0.5, 1.0, 1.25, 1.0, 5 / 6]),
    "div from the left": (lambda x, r: 1.0 / x[1], [1.0, -0.5]),
    "pow": (lambda x, r: x[1] ** 2.0, [1.0, 4.0]),
    "pow from the left": (lambda x, r: 2.0 ** x[1], [2.0, 0.25]),
    "neg": (lambda x, r: -x[1], [-1.0, 2.0]),
    "abs": (lambda x, r: x[1].abs(), [1.0, 2.0]),
    "exp of a log": (lambda x, r: x[2].log().exp().detach(), [1.0, 3.0, 5.0]),
    "minimum": (lambda x, r: ops.minimum(x[1], 0.0), [0.0, -2.0]),
    "maximum": (lambda x, r: ops.maximum(x[1], x[2]), [1.0, 3.0, 5.0]),
    "clip": (lambda x, r: ops.clip(x[1], -1.0, 0.5), [0.5, -1.0]),
    "clip below": (lambda x, r: ops.clip(x[1], low=0.0), [1.0, 0.0]),
    "where": (lambda x, r: ops.where(r.truncated, x[2], -1.0), [1.0, -1.0, -1.0]),
    "float of a bool": (lambda x, r: r.truncated.float(), [1.0, 0.0, 0.0]),
    "less": (lambda x, r: x[2] < 3.0, [True, False, False]),
    "less or equal": (lambda x, r: x[2] <= 3.0, [True, True, False]),
    "greater": (lambda x, r: x[2] > 3.0, [False, False, True]),
    "greater or equal": (lambda x, r: x[2] >= 3.0, [False, True, True]),
    "equal": (lambda x, r: x[2] == 3.0, [False, True, False]),
    "not equal": (lambda x, r: x[2] != 3.0, [True, False, True]),
    "and": (lambda x, r: (x[2] > 1.0) & (x[2] < 5.0), [False, True, False]),
    "or": (lambda x, r: r.truncated | (x[2] == 5.0), [True, False, True]),
    "not": (lambda x, r: ~r.truncated, [False, True, True]),
}
REDUCED = {
    "sum of all": (lambda x, r: x[2].sum(), 9.0),
    "mean of all": (lambda x, r: x[2].mean(), 3.0),
    "std of all divides by n - 1": (lambda x, r: x[2].std(), 2.0),
    "min of all": (lambda x, r: x[1].min(), -2.0),
    "max of all": (lambda x, r: x[1].max(), 1.0),
    "sum of trained tokens": (lambda x, r: x[3].sum(mask=r.mask), 19.0),
    "sum over tokens": (lambda x, r: x[3].sum(over="token", mask=r.mask), [1.0, 3.0, 15.0]),
    "mean over tokens": (lambda x, r: x[3].mean(over="token", mask=r.mask), [1.0, 3.0, 5.0]),
    "mean over samples": (lambda x, r: x[2].mean(over="sample"), [2.0, 5.0]),
    "std of one sample is 0": (lambda x, r: x[2].std(over="sample"), [2.0**0.5, 0.0]),
    "max over samples": (lambda x, r: x[2].max(over="sample"), [3.0, 5.0]),
    "mean over prompts": (lambda x, r: x[1].mean(over="prompt"), -0.5),
    "mean of a mask of samples": (lambda x, r: x[2].mean(mask=~r.truncated), 4.0),
}


@pytest.mark.parametrize(("program", "expected"), ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_elements(program, expected):
    assert evaluate(program) == pytest.approx(expected)


@pytest.mark.parametrize(("program", "expected"), REDUCED.values(), ids=REDUCED)
def test_reductions(program, expected):
    assert evaluate(program) == pytest.approx(expected)


def test_a_reduction_loses_its_axis():
    types = []
    evaluate(lambda x, r: types.append(x[3].sum(over="token", mask=r.mask).type) or x[0])

    assert [str(type) for type in types] == ["f32[prompt, sample]"]


def test_arithmetic_gives_plain_numbers_and_detach_keeps_the_origin():
    types = []
    evaluate(lambda x, r: types.extend([(r.logprobs + 0.0).type, r.logprobs.detach().type]) or x[0])

    assert [str(type) for type in types] == [
        "f32[prompt, sample, token]",
        "f32[prompt, sample, token]{policy.0 T=1 sampled}",
    ]
