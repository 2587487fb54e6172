"""Blocks hold every request once, in order, and each worker gets its share of them."""

from hypothesis import given
from hypothesis import strategies as st

from flowrl.runtime.engine import Request
from flowrl.runtime.rows.shares import shares
from flowrl.runtime.sampling.blocks import blocks

REQUESTS = st.lists(st.integers(1, 9).map(lambda n: Request([1], seed=0, n=n)), max_size=20)
WORKERS = st.integers(1, 6)


def size(block):
    return sum(request.n for request in block)


def flat(made):
    return [request for block in made for request in block]


@given(REQUESTS, st.integers(1, 12), WORKERS)
def test_blocks_have_at_most_so_many_samples_whatever_the_number_of_workers(
    requests, sequences, workers
):
    made = blocks(requests, sequences, workers)

    assert flat(made) == requests
    assert all(size(block) <= sequences or len(block) == 1 for block in made)
    assert made == blocks(requests, sequences)


@given(REQUESTS, WORKERS)
def test_without_a_limit_each_worker_has_one_block_as_large_as_the_others(requests, workers):
    made = blocks(requests, None, workers)

    assert flat(made) == requests
    assert all(made)
    most = max((request.n for request in requests), default=0)
    assert all(abs(size(block) - size(flat(made)) / workers) <= most for block in made)
    assert all(len(its) <= 1 for its in shares([size(block) for block in made], workers))
