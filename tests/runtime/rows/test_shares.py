"""Send lists: every row goes once to whoever wants it."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flowrl.runtime.rows.shares import Send, send_list, shares

SIZES = st.lists(st.integers(0, 20), max_size=12)
WORKERS = st.integers(1, 6)


def division(rows, cuts):
    bounds = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    return [range(a, b) for a, b in pairwise(bounds)]


@given(SIZES, WORKERS)
def test_shares_are_contiguous_and_cover_all_rows(sizes, workers):
    parts = shares(sizes, workers)

    assert len(parts) == workers
    assert [row for part in parts for row in part] == list(range(len(sizes)))


@given(SIZES, WORKERS)
def test_no_share_is_larger_than_even_by_more_than_a_row(sizes, workers):
    loads = [sum(sizes[i] for i in part) for part in shares(sizes, workers)]

    assert max(loads) <= sum(sizes) / workers + max(sizes, default=0)


@given(
    st.integers(0, 30),
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_each_wanted_row_is_sent_once_in_order_by_who_has_it(rows, have_cuts, want_cuts):
    have, want = division(rows, have_cuts), division(rows, want_cuts)

    sends = send_list(have, want)

    for dst, wanted in enumerate(want):
        mine = [send for send in sends if send.dst == dst]
        assert [row for send in mine for row in range(send.start, send.stop)] == list(wanted)
    assert all(have[s.src].start <= s.start < s.stop <= have[s.src].stop for s in sends)


def test_four_blocks_go_from_one_worker_to_two_and_back():
    want = shares([3, 3, 3, 3], 2)

    out = send_list([range(4)], want)
    back = send_list(want, [range(4)])

    assert out == [Send(0, 0, 0, 2), Send(0, 1, 2, 4)]
    assert back == [Send(0, 0, 0, 2), Send(1, 0, 2, 4)]
