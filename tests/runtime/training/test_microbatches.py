import torch
from hypothesis import given
from hypothesis import strategies as st

from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Sequences
from flowrl.runtime.training.microbatches import split_rows

rows = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=12)


def batch_of(lengths):
    """Return rows of these context and response lengths, of numbered tokens."""
    count = iter(range(10_000))
    contexts, tokens = [], []
    for context, response in lengths:
        contexts.append([next(count) for _ in range(context)])
        tokens.append([next(count) for _ in range(response)])
    return Sequences(Ragged.of_rows(contexts, torch.int64), Ragged.of_rows(tokens, torch.int64))


@given(rows, st.integers(1, 60), st.sampled_from(["packed", "padded"]))
def test_each_row_is_in_one_microbatch_and_none_is_over_the_budget(lengths, budget, packing):
    parts = split_rows(batch_of(lengths), budget, packing)

    assert sorted(row for part in parts for row in part.rows.tolist()) == list(range(len(lengths)))
    for part in parts:
        sizes = [sum(lengths[row]) for row in part.rows]
        size = sum(sizes) if packing == "packed" else max(sizes) * len(sizes)
        assert size <= budget or len(sizes) == 1
        assert part.rows.tolist() == sorted(part.rows.tolist())


@given(rows, st.integers(1, 60), st.sampled_from(["packed", "padded"]), st.integers(1, 4))
def test_ranks_have_each_row_once_and_as_many_microbatches(lengths, budget, packing, ranks):
    batch = batch_of(lengths)

    parts = [split_rows(batch, budget, packing, rank, ranks) for rank in range(ranks)]

    of = [[row for part in own for row in part.rows.tolist()] for own in parts]
    assert sorted(row for own in of for row in own) == list(range(len(lengths)))
    assert len({len(own) for own in parts}) == 1
    assert all(len(part.batch) for own in parts for part in own)
    loads = [sum(sum(lengths[row]) for row in own) for own in of]
    longest = max((sum(pair) for pair in lengths), default=0)
    assert max(loads) <= sum(loads) / ranks + longest


@given(rows, st.integers(1, 60))
def test_what_is_taken_from_the_batch_comes_back_to_its_place(lengths, budget):
    batch = batch_of(lengths)
    whole = {"logprobs": batch.tokens.values.float(), "rewards": torch.arange(len(lengths)).float()}
    found = {name: torch.zeros_like(value) for name, value in whole.items()}

    for part in split_rows(batch, budget, "packed"):
        share = part.take(whole)
        assert torch.equal(share["logprobs"], part.batch.tokens.values.float())
        part.put(share, found)

    assert all(torch.equal(found[name], whole[name]) for name in whole)


def test_rows_of_a_microbatch_are_of_about_one_length():
    lengths = [(1, 1), (1, 8), (1, 2), (1, 7), (1, 1), (1, 9)]

    parts = split_rows(batch_of(lengths), 30, "padded")

    assert [part.rows.tolist() for part in parts] == [[1, 3, 5], [0, 2, 4]]
