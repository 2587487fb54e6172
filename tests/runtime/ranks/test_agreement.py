"""Ranks that come to the same place go on; others are told who is where."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from torch.distributed import HashStore

from flowrl.runtime.ranks.agreement import Agreement, RankMissingError, RanksDisagreeError

WALKS = st.integers(0, 6).flatmap(
    lambda length: st.lists(st.text("ab", min_size=length, max_size=length), min_size=1, max_size=4)
)


def walked(*walks, timeout=60.0, names=()):
    """Have each rank, a thread, come to its places one after the other.

    Returns:
        for each rank, how many it passed, and the error that it ended in.
    """
    store = HashStore()
    store.set_timeout(timedelta(seconds=timeout))

    def walk(rank):
        agreement = Agreement(store, rank, len(walks), timeout, names)
        for number, place in enumerate(walks[rank]):
            try:
                agreement.reach(place)
            except RankMissingError as error:
                return number, error
        return len(walks[rank]), None

    with ThreadPoolExecutor(len(walks)) as pool:
        found = list(pool.map(walk, range(len(walks))))
    assert store.num_keys() <= 2 * len(walks)  # what was said is forgotten
    return found


@settings(max_examples=30, deadline=None)
@given(WALKS)
def test_all_ranks_go_as_far_as_all_do_the_same_and_none_waits_in_vain(walks):
    together = len(list(takewhile(lambda said: len(set(said)) == 1, zip(*walks, strict=True))))

    found = walked(*walks)

    assert {number for number, _ in found} == {together}
    expected = type(None) if together == len(walks[0]) else RanksDisagreeError
    assert {type(error) for _, error in found} == {expected}


def test_who_does_what_is_told_to_all():
    found = walked(["a", "b"], ["a", "c"], ["a", "b"])

    assert len({str(error) for _, error in found}) == 1
    assert str(found[0][1]) == snapshot("""\
ranks are about to do different things: ranks 0, 2: b; rank 1: c
help: all are told the same, in the same order: look for what differs on one of them, such as the files of a model, or code that depends on the rank\
""")


def test_a_rank_that_does_not_come_is_told_with_where_it_was():
    (_, first), (passed, _), (_, last) = walked(["a", "b"], ["a"], ["a", "b"], timeout=5.0)

    assert passed == 1
    assert str(first) == snapshot("""\
rank 0 of 3 waited at b for the others, of which one ended or did not come within 5 s; rank 1 was last at a
help: look at what the other ranks say; `cluster.rank_timeout` is how long one waits\
""")
    assert "rank 2 of 3 waited at b for the others" in str(last)


WORKERS = ("worker 0 of pool `train`", "worker 1 of pool `train`", "worker 0 of pool `samples`")


def test_ranks_that_have_names_are_called_by_them():
    _, (_, differs), _ = walked(["a"], ["b"], ["a"], names=WORKERS)
    (_, waited), *_ = walked(["a", "b"], ["a", "b"], ["a"], timeout=5.0, names=WORKERS)

    assert [differs.problem, waited.problem] == snapshot(
        [
            "ranks are about to do different things: worker 0 of pool `train`, worker 0 of pool `samples`: a; worker 1 of pool `train`: b",
            "worker 0 of pool `train` waited at b for the others, of which one ended or did not come within 5 s; worker 0 of pool `samples` was last at a",
        ]
    )


def test_some_of_the_ranks_keep_their_names():
    whole = Agreement(HashStore(), 2, 3, 60.0, WORKERS)

    assert whole.among([0, 2]).names == [WORKERS[0], WORKERS[2]]
