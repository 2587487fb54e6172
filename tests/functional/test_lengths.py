from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.functional.lengths import (
    balance,
    micro_batches,
    micro_batches_per_rank,
    overlong_penalty,
    split_even,
)
from tests.functional.batches import refusal

sizes_of = st.lists(st.integers(0, 20), min_size=1, max_size=7)


@given(sizes=sizes_of, k=st.integers(1, 3))
def test_parts_are_whole_and_within_the_bound_of_the_best(sizes, k):
    k = min(k, len(sizes))

    parts = balance(sizes, k)

    assert sorted(row for part in parts for row in part) == list(range(len(sizes)))
    assert all(parts)
    loads = lambda owners: [
        sum(size for size, owner in zip(sizes, owners, strict=True) if owner == part)
        for part in range(k)
    ]
    best = min(max(loads(owners)) for owners in product(range(k), repeat=len(sizes)))
    assert max(sum(sizes[row] for row in part) for part in parts) <= (4 / 3 - 1 / (3 * k)) * best


@given(sizes=st.lists(st.integers(0, 20), max_size=20))
def test_no_micro_batch_is_over_its_tokens_and_no_two_would_fit_in_one(sizes):
    bins = micro_batches(sizes, 20)

    loads = sorted(sum(sizes[row] for row in rows) for rows in bins)
    assert sorted(row for rows in bins for row in rows) == list(range(len(sizes)))
    assert all(load <= 20 for load in loads)
    assert len(loads) < 2 or loads[0] + loads[1] > 20


@given(ranks=st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=4))
def test_all_ranks_have_as_many_micro_batches(ranks):
    plan = micro_batches_per_rank(ranks, 9)

    assert len({len(bins) for bins in plan}) <= 1
    for counts, bins in zip(ranks, plan, strict=True):
        assert [rows for rows in bins if rows] == micro_batches(counts, 9)


@given(n=st.integers(0, 99), k=st.integers(1, 9))
def test_an_even_split_is_whole_and_differs_by_one_at_most(n, k):
    sizes = split_even(n, k)

    assert sum(sizes) == n
    assert len(sizes) == k
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(length=st.integers(0, 60))
def test_the_penalty_falls_from_0_to_the_factor_and_never_rises(length):
    both = torch.tensor([length, length + 1])

    penalty = overlong_penalty(both, max_len=40, cache_len=10, factor=2.0)

    assert -2 <= penalty[1] <= penalty[0] <= 0
    assert (penalty[0] == 0) == (length <= 30)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: balance([1, 2], 3),
            snapshot("k must be in [1, rows = 2]; got 3"),
        ),
        (
            lambda: micro_batches([3, 12], 10),
            snapshot("row 1 has 12 tokens, more than max_tokens = 10"),
        ),
        (lambda: split_even(3, 0), snapshot("k must be above 0; got 0")),
        (
            lambda: overlong_penalty(torch.tensor([1]), max_len=4, cache_len=5),
            snapshot("cache_len must be in [1, max_len = 4]; got 5"),
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused(call, message):
    assert refusal(call) == message
