"""Minibatches and microbatches: each row once, groups whole if asked, of even or bounded size."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Node, new_value
from flowrl.ir.types import i32
from flowrl.ops.division import Microbatches, Minibatches
from flowrl.runtime.graph import division
from flowrl.runtime.graph.division import Units
from flowrl.runtime.rows import selection
from tests.graphs import HERE
from tests.runtime.rows.test_selection import AXES, packed, unpacked

groups = st.lists(st.lists(st.integers(1, 6), max_size=3), max_size=5)
"""Tokens of each sample of each prompt."""
BY = ("group", "sequence")


def batch_of(lengths):
    """Return tokens that are all different, and contexts of 1, 2, 3, ... tokens."""
    count = iter(range(10_000))
    tree = [[[next(count) for _ in range(n)] for n in group] for group in lengths]
    return packed(tree), Ragged.of_rows([[0] * (i + 1) for i in range(len(lengths))], torch.int64)


def divided(lengths, sequences, *, epochs=1, by="group", balance="sequences", seed=0):
    """Return the samples of each minibatch, as prompts of samples of tokens."""
    op = Minibatches(sequences, epochs, by, (), balance)
    tokens, context = batch_of(lengths)
    given = (tokens, context) if balance == "tokens" else (tokens,)
    parts = division.minibatches(op, seed, AXES, *given)
    return [unpacked(selection.take(part, tokens, AXES)) for part in parts]


def samples(parts):
    """Return all samples of some parts, sorted."""
    return sorted(sample for part in parts for group in part for sample in group)


def read(lengths, part):
    """Return how many tokens a model reads of a minibatch: with each sample, its context."""
    contexts = {}
    for prompt, group in enumerate(unpacked(batch_of(lengths)[0]), start=1):
        contexts |= {sample[0]: prompt for sample in group}
    return sum(contexts[sample[0]] + len(sample) for group in part for sample in group)


@given(groups, st.integers(1, 9), st.sampled_from(BY), st.sampled_from(["sequences", "tokens"]))
def test_each_sequence_is_in_one_minibatch_of_each_epoch(lengths, size, by, balance):
    parts = divided(lengths, size, epochs=2, by=by, balance=balance)

    everything = samples([unpacked(batch_of(lengths)[0])])
    half = len(parts) // 2
    assert samples(parts[:half]) == samples(parts[half:]) == everything


@given(groups, st.integers(1, 9), st.sampled_from(BY))
def test_minibatches_balanced_by_sequences_differ_by_one_unit(lengths, size, by):
    parts = divided(lengths, size, by=by)

    units = [len(part) if by == "group" else sum(map(len, part)) for part in parts]
    assert max(units, default=0) - min(units, default=0) <= 1


@given(groups, st.integers(1, 9), st.sampled_from(BY))
def test_minibatches_balanced_by_tokens_differ_by_the_tokens_of_one_unit(lengths, size, by):
    tokens, context = batch_of(lengths)
    sizes = Units.of(tokens, AXES, by).sizes(context)

    parts = divided(lengths, size, by=by, balance="tokens")

    loads = [read(lengths, part) for part in parts]
    assert max(loads, default=0) - min(loads, default=0) <= max(sizes, default=0)
    assert sum(loads) == sum(sizes)


def test_balanced_minibatches_are_those_of_the_lengths_whatever_the_seed_in_another_order():
    lengths = [[9, 1], [5, 5], [2, 2], [1, 7], [3, 3], [4, 4]]

    found = [divided(lengths, 4, seed=seed, balance="tokens") for seed in range(6)]

    assert len({str(sorted(map(str, parts))) for parts in found}) == 1
    assert len({str(parts) for parts in found}) > 1


def test_tokens_are_balanced_where_sequences_are_not():
    lengths = [[40], [1], [1], [1], [1], [1], [1], [1]]

    parts = divided(lengths, 4, balance="tokens")

    assert sorted(sum(map(len, part)) for part in parts) == [1, 7]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("balance", ["sequences", "tokens"])
def test_no_prompts_and_prompts_without_samples_make_no_sequence(by, balance):
    assert divided([], 2, by=by, balance=balance) == []
    assert samples(divided([[], []], 2, by=by, balance=balance)) == []


def microbatches(lengths, max_tokens, by):
    """Return the samples of each microbatch, as prompts of samples of tokens."""
    node = Node(Microbatches(max_tokens, by, ()), (new_value(i32(*AXES)),), (), HERE)
    tokens, context = batch_of(lengths)
    parts = division.microbatches(node, tokens, context)
    return [unpacked(selection.take(part, tokens, AXES)) for part in parts]


@given(groups, st.sampled_from(BY))
def test_microbatches_hold_each_sequence_once_and_no_more_than_their_tokens(lengths, by):
    tokens, context = batch_of(lengths)
    most = max(Units.of(tokens, AXES, by).sizes(context), default=1)

    parts = microbatches(lengths, most, by)

    assert samples(parts) == samples([unpacked(tokens)])
    assert all(read(lengths, part) <= most for part in parts)
    assert (
        len(parts) < 2
        or sum(sorted(read(lengths, part) for part in parts)[:2]) > most
        or any(not sample for group in unpacked(tokens) for sample in group)
    )


def test_samples_of_a_group_may_lie_in_two_microbatches_by_sequence():
    lengths = [[4, 4], [2]]  # with contexts of 1 and 2: sequences of 5, 5 and 4 tokens

    assert len(microbatches(lengths, 10, "group")) == 2
    assert [len(part) for part in microbatches(lengths, 9, "sequence")] == [2, 1]


def test_rows_without_samples_have_their_context_and_their_tokens():
    tokens, context = (
        Ragged.of_rows([[1, 2], []], torch.int64),
        Ragged.of_rows([[0], [0, 0]], torch.int64),
    )

    for by in BY:
        assert Units.of(tokens, AXES[:2], by).sizes(context) == [3, 2]
