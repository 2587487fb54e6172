"""Ops that users write, on every unit, and what they are told when their function is wrong."""

import pytest
import torch
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.host import Handle, Host, Resident, Scores
from flowrl.runtime.rows.rows import Row
from tests.runtime import steps

TREE = [[[1, 2], [3]], [[4, 5, 6]], [[], [7]]]
"""Tokens of samples of three prompts."""


def run(function, tree=TREE):
    """Return the outputs of `function(pairs)` in a program, on the tokens of `tree`."""

    @fl.program
    def program(pairs: fl.Pairs):
        results = function(pairs)
        results = results if isinstance(results, tuple) else (results,)
        return {str(i): x for i, x in enumerate(results)}

    samples = [sample for prompt in tree for sample in prompt]
    packed = Ragged.of_rows(samples, torch.int64)
    levels = (torch.tensor([len(prompt) for prompt in tree], dtype=torch.int64), *packed.lengths)
    given = {
        "pairs.tokens": Ragged(packed.values, levels),
        "pairs.mask": Ragged(torch.ones(len(packed.values), dtype=torch.bool), levels),
        "pairs.context": Ragged.of_rows([[1]] * len(tree), torch.int64),
        "pairs.rows": tuple(Row(i, "", "") for i in range(len(tree))),
    }
    graph = fl.trace(program).lower().graph
    outputs = Interpreter(Host()).run(graph, [given[name] for name, _ in graph.inputs])
    return [output.tolist() for output in outputs]


CALLS = []


def seen(*tensors):
    CALLS.append(
        [x.tolist() if isinstance(x, torch.Tensor) else [y.tolist() for y in x] for x in tensors]
    )


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


@fl.op("i32[..., token] -> f32[..., token]", per="token")
def halved(tokens):
    seen(tokens)
    return tokens / 2


@fl.op("i32[..., token] -> f32[...]", per="sample")
def size(tokens):
    seen(tokens)
    return len(tokens)


@fl.op("i32[..., token], f32[...] -> f32[..., token], f32[...]", per="sample")
def split(tokens, weight, *, power=1):
    """Return each token times its sample's weight, and the sample's last token."""
    return tokens * weight**power, tokens[-1] if len(tokens) else 0.0


@fl.op("i32[..., token] -> f32[...]", per="sample")
def sizes(tokens, *, lengths):
    seen(tokens, lengths)
    return lengths


@fl.op("f32[prompt, sample] -> f32[prompt]", per="group")
def widest(scores):
    seen(scores)
    return scores.max() - scores.min()


@fl.op("f32[prompt, sample] -> f32[prompt, sample]", per="sample")
def doubled(score):
    seen(score)
    return 2 * score


@fl.op("f32[prompt, sample] -> f32[prompt, sample]", per="group")
def ranked(scores, *, groups):
    seen(scores, groups)
    return scores - 10 * groups


@fl.op("i32[prompt, sample, token] -> f32[prompt, sample, token]", per="group")
def numbered(samples):
    """Return each token's sample number in its group."""
    seen(samples)
    return torch.cat([torch.full((len(row),), i) for i, row in enumerate(samples)])


@fl.op("f32[prompt], f32[] -> f32[prompt], f32[]", per="batch")
def shifted(a, b):
    seen(a, b)
    return a - b, a.sum()


def test_per_token_is_called_once_with_all_elements():
    got = run(lambda pairs: halved(pairs.tokens).sum(mask=pairs.mask))

    assert got == [14.0]
    assert CALLS == [[[1, 2, 3, 4, 5, 6, 7]]]


def test_per_sample_is_called_with_the_tokens_of_each_sample():
    got = run(lambda pairs: size(pairs.tokens).max())

    assert got == [3.0]
    assert CALLS == [[[1, 2]], [[3]], [[4, 5, 6]], [[]], [[7]]]


def test_per_sample_is_called_with_each_number_of_a_sample():
    got = run(lambda pairs: doubled(size(pairs.tokens)).sum())

    assert got == [14.0]
    assert CALLS[5:] == [[2.0], [1.0], [3.0], [0.0], [1.0]]


def test_per_sample_with_lengths_is_called_once():
    got = run(lambda pairs: sizes(pairs.tokens).sum())

    assert got == [7.0]
    assert CALLS == [[[1, 2, 3, 4, 5, 6, 7], [2, 1, 3, 0, 1]]]


def test_several_results_are_a_tuple():
    def function(pairs):
        scaled, last = split(pairs.tokens, size(pairs.tokens), power=2)
        return scaled.sum(mask=pairs.mask), last.sum()

    assert run(function) == [4.0 * 3 + 3 + 9 * 15 + 7, 2.0 + 3 + 6 + 0 + 7]


def test_per_group_is_called_with_the_samples_of_each_group():
    got = run(lambda pairs: widest(size(pairs.tokens)).sum())

    assert got == [2.0]
    assert CALLS[5:] == [[[2.0, 1.0]], [[3.0]], [[0.0, 1.0]]]


def test_per_group_with_groups_is_called_once():
    got = run(lambda pairs: ranked(size(pairs.tokens)).sum())

    assert got == [7.0 - 10 * (1 + 2 + 2)]
    assert CALLS[5:] == [[[2.0, 1.0, 3.0, 0.0, 1.0], [0, 0, 1, 2, 2]]]


def test_per_group_sees_tokens_sample_by_sample():
    got = run(lambda pairs: numbered(pairs.tokens).sum(mask=pairs.mask))

    assert got == [2.0]
    assert CALLS == [[[[1, 2], [3]]], [[[4, 5, 6]]], [[[], [7]]]]


def test_per_batch_is_called_once_with_numbers_spread_over_what_they_meet():
    def function(pairs):
        most = size(pairs.tokens).max(over="sample")
        a, total = shifted(most, most.mean())
        return a.sum(), total

    got = run(function)

    assert got == pytest.approx([0.0, 6.0], abs=1e-6)
    assert CALLS[5:] == [[[2.0, 3.0, 1.0], 2.0]]


@fl.op("f32[..., reward], i32[..., token] -> f32[..., token], f32[..., reward]", per="sample")
def shared(rewards, tokens):
    """Return each token times the sum of its sample's rewards, and the rewards as they are."""
    return tokens * rewards.sum(), rewards


def test_an_op_may_see_two_last_axes():
    @fl.program
    def program(policy: fl.Model, prompts: fl.Prompts):
        rollouts, rewards = ops.score("all", ops.generate(policy, prompts, n=2), names=("a", "b"))
        scaled, same = shared(rewards, rollouts.tokens)
        return {"scaled": scaled.sum(mask=rollouts.mask), "same": (same - rewards).abs().max()}

    graph = fl.trace(program).graph
    scores = lambda names, rows, texts, samples, step, given: Scores([[2.0] * 4, [1.0] * 4], {})
    tokens = steps.FixedTokens()
    host = Host(generators={"policy": tokens}, detokenizers={"policy": Letters()}, score=scores)
    policy = Handle(Resident("policy", NoEngine()), 0)
    context = Ragged.of_rows([[1], [1]], torch.int64)
    rows = tuple(Row(i, "", "") for i in range(2))

    scaled, same, *_ = Interpreter(host).run(graph, [policy, context, rows])

    seeds = host.row_seeds(rows, 0)
    drawn = [tokens.sample(seed + i).tokens for seed in seeds for i in range(2)]
    assert len({len(row) for row in drawn}) > 1
    assert (scaled, same) == (3 * sum(map(sum, drawn)), 0)


class Letters:
    """A detokenizer of which nothing is asked."""

    def decode(self, tokens, *, skip_special_tokens):
        return ""


class NoEngine:
    """An engine of which nothing is asked."""

    def weights(self):
        return {}


def test_an_op_on_no_rows_gives_no_elements():
    def function(pairs):
        scaled, last = split(pairs.tokens, size(pairs.tokens))
        return scaled.sum(mask=pairs.mask), last.sum(), widest(last).sum()

    assert run(function, tree=[]) == [0.0, 0.0, 0.0]


def refusal(function):
    with pytest.raises(EngineError) as error:
        run(function)
    assert ".sum()" in error.value.where
    assert str(error.value.where).count("\n") == 2  # the line of the program, under its caret
    return f"{error.value.problem}\nhelp: {error.value.hint}"


def test_a_function_that_raises_is_named_with_the_line_of_the_program():
    @fl.op("i32[..., token] -> f32[...]", per="sample")
    def broken(tokens):
        return tokens[5]

    assert refusal(lambda pairs: broken(pairs.tokens).sum()) == snapshot("""\
test_a_function_that_raises_is_named_with_the_line_of_the_program.<locals>.broken: the function raised IndexError: index 5 is out of bounds for dimension 0 with size 2
help: it was called with tensors of shapes (2,), per='sample'\
""")


def test_a_function_that_returns_another_number_of_elements_is_named():
    @fl.op("i32[..., token] -> f32[..., token]", per="batch")
    def short(tokens):
        return tokens[:2]

    assert refusal(
        lambda pairs: short(pairs.tokens).sum(over="token", mask=pairs.mask).sum()
    ) == snapshot("""\
test_a_function_that_returns_another_number_of_elements_is_named.<locals>.short: the function must return 7 elements for f32[prompt, sample, token]; got a tensor of shape (2,)
help: with per='batch' it returns an element for each of its result type\
""")


def test_elements_that_calls_for_each_sample_lack_are_counted_over_all_calls():
    @fl.op("i32[..., token] -> f32[..., token]", per="sample")
    def last(tokens):
        return tokens[-1:]

    assert refusal(
        lambda pairs: last(pairs.tokens).sum(over="token", mask=pairs.mask).sum()
    ) == snapshot("""\
test_elements_that_calls_for_each_sample_lack_are_counted_over_all_calls.<locals>.last: the function must return 7 elements for f32[prompt, sample, token]; got 4 from its calls, one a sample
help: with per='sample' it returns an element for each of its result type\
""")


def test_a_function_that_returns_another_number_of_results_is_named():
    @fl.op("f32[...] -> f32[...], f32[...]", per="token")
    def single(x):
        return x

    assert refusal(lambda pairs: single(size(pairs.tokens))[0].sum()) == snapshot("""\
test_a_function_that_returns_another_number_of_results_is_named.<locals>.single: the function must return 2 tensors; got 1 tensor
help: its signature is f32[...] -> f32[...], f32[...]; several results are a tuple\
""")


def test_a_function_that_returns_nan_is_named():
    @fl.op("f32[...] -> f32[...]", per="token")
    def undefined(x):
        return x / x

    assert refusal(lambda pairs: undefined(size(pairs.tokens)).sum()) == snapshot("""\
test_a_function_that_returns_nan_is_named.<locals>.undefined: the function returned NaN in 1 of 5 elements
help: look for 0 / 0, and for the log of what is below 0\
""")


def test_what_an_op_of_flowrl_refuses_is_told_with_the_line():
    got = refusal(lambda pairs: ops.dpo_loss(size(pairs.tokens), beta=0.1).sum())

    assert got == snapshot("""\
dpo_loss: the function refused: a pair must have two samples, the chosen one first; pair 1 has 1
help: it was called with tensors of shapes (5,), per='group'\
""")


def test_an_op_may_write_to_what_it_gets():
    @fl.op("f32[..., sample], f32[] -> f32[..., sample]", per="group")
    def negated(x, shift, *, groups):
        groups.zero_()
        return x.neg_().sub_(shift.add_(1))

    def function(pairs):
        sizes = size(pairs.tokens)
        least = sizes.min()
        return negated(sizes, least).sum(), least, sizes.sum(), negated(sizes, least).sum()

    assert run(function) == [-12.0, 0.0, 7.0, -12.0]


@fl.op("f32[] -> f32[]", per="batch")
def absent(x):
    print(x)


@fl.op("f32[] -> f32[]", per="batch")
def told(x):
    return "three"


@fl.op("f32[...] -> i32[...]", per="token")
def halves(x):
    return x / 2


@fl.op("f32[...] -> bool[...]", per="token")
def counts(x):
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda pairs: absent(size(pairs.tokens).sum()),
            snapshot("""\
absent: the function must return tensors; got NoneType
help: its signature is f32[] -> f32[]\
"""),
        ),
        (
            lambda pairs: told(size(pairs.tokens).sum()),
            snapshot("""\
told: the function must return tensors; got str
help: its signature is f32[] -> f32[]\
"""),
        ),
        (
            lambda pairs: halves(size(pairs.tokens)).float().sum(),
            snapshot("""\
halves: the function must return whole numbers for i32[prompt, sample]; got 0.5
help: round or compare in the function, or write f32 in its signature\
"""),
        ),
        (
            lambda pairs: counts(size(pairs.tokens)).float().sum(),
            snapshot("""\
counts: the function must return True and False for bool[prompt, sample]; got 2
help: round or compare in the function, or write f32 in its signature\
"""),
        ),
    ],
)
def test_a_function_that_returns_what_its_signature_does_not_say_is_named(function, message):
    assert refusal(function) == message


def test_whole_numbers_may_be_returned_in_any_dtype():
    @fl.op("i32[..., token] -> i32[..., token]", per="token")
    def doubled(tokens):
        return tokens * 2.0

    assert run(lambda pairs: doubled(pairs.tokens).float().sum(mask=pairs.mask)) == [56.0]
