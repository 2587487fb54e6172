"""Ops of users: called with flat tensors, or once for each unit."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl.errors import EngineError
from flowrl.ir.printer import text
from tests.ir.source import traced
from tests.ops.evaluated import evaluate

calls = []


@fl.op("f32[..., token] -> f32[..., token]", per="token")
def doubled(x, *, by=2.0):
    calls.append(tuple(x.shape))
    return by * x


@fl.op("f32[..., token], bool[..., token] -> f32[...]", per="sample")
def last(x, mask):
    return x[mask][-1]


@fl.op("f32[..., sample], f32[...] -> f32[..., sample], f32[...]", per="group")
def centred(x, shift):
    return x - x.mean() + shift, x.max()


@fl.op("f32[..., sample], f32[..., sample] -> f32[..., sample]", per="group")
def shares(lengths, groups):
    return lengths / groups.sum()


@fl.op("f32[..., sample] -> f32[]", per="batch")
def spread(x):
    return x.max() - x.min()


@fl.op("f32[..., sample] -> f32[..., sample]", per="group")
def short(x):
    return x[:1]


@fl.op("f32[..., sample] -> f32[..., sample]", per="group")
def broken(x):
    return x.no_such_method()


def test_an_op_of_tokens_is_called_once_with_all_of_them():
    calls.clear()

    assert evaluate(lambda x, r: doubled(x[3], by=3.0)) == [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]
    assert calls == [(6,)]


def test_an_op_of_samples_sees_one_at_a_time():
    assert evaluate(lambda x, r: last(x[3], r.mask)) == [1.0, 3.0, 6.0]


def test_an_op_of_groups_may_have_several_results():
    got = evaluate(lambda x, r: centred(x[2], x[1]))

    assert got == ([0.0, 2.0, -2.0], [3.0, 5.0])


def test_an_argument_may_have_the_name_of_an_option_that_is_supplied():
    assert evaluate(lambda x, r: shares(x[2], x[2])) == snapshot([0.25, 0.75, 1.0])


def test_an_op_of_the_batch_gives_a_number():
    assert evaluate(lambda x, r: spread(x[2])) == 4.0


def test_a_number_is_broadcast():
    assert evaluate(lambda x, r: centred(x[2], 0.0)[0]) == [-1.0, 1.0, 0.0]


def test_too_few_elements_name_the_line_and_what_was_expected():
    with pytest.raises(EngineError) as error:
        evaluate(lambda x, r: short(x[2]))

    assert "short" in str(error.value)
    assert "graphs.py:1" in str(error.value)


def test_what_the_function_raises_is_told_with_its_shapes():
    with pytest.raises(EngineError, match="AttributeError") as error:
        evaluate(lambda x, r: broken(x[2]))

    assert "help:" in str(error.value)


def test_another_body_is_another_op():
    program = """
        @fl.op("f32[prompt, context] -> f32[prompt, context]", per="token")
        def scaled(x):
            return x * {number}

        @fl.program
        def step(prompts: fl.Prompts):
            return {{"x": scaled(prompts.context.float()).mean()}}
    """
    made = [text(traced(program.format(number=number))) for number in (1, 2, 1)]

    assert made[0] == made[2] != made[1]
    assert 'code="example.py:scaled#' in made[0]
