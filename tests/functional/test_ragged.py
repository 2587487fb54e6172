import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowrl.functional.groups import Groups
from flowrl.functional.ragged import Ragged, discounted_sums, pad, segment, unpad

rows_of = st.lists(st.lists(st.integers(-9, 9), max_size=9), max_size=6)


@given(rows=rows_of.filter(len))
def test_packing_and_padding_undo_each_other(rows):
    ragged = Ragged.of_rows(rows, torch.int64)

    padded = pad(ragged.values, ragged.lengths[0], -1)

    assert torch.equal(unpad(padded, ragged.lengths[0]), ragged.values)
    assert [row.tolist() for row in ragged.rows()] == rows


@pytest.mark.parametrize(("reduction", "of"), [("sum", sum), ("max", max), ("min", min)])
@given(rows=rows_of)
def test_segment_reduces_each_row(reduction, of, rows):
    ragged = Ragged.of_rows(rows, torch.float64)

    reduced = segment(ragged.values, ragged.lengths[0], reduction)

    empty = {"sum": 0.0, "max": -torch.inf, "min": torch.inf}[reduction]
    assert reduced.tolist() == [of(row) if row else empty for row in rows]


@given(rows=rows_of, discount=st.floats(0, 1))
def test_discounted_sums_are_their_recursion(rows, discount):
    ragged = Ragged.of_rows(rows, torch.float64)

    sums = discounted_sums(ragged.values, ragged.lengths[0], discount)

    for row, got in zip(rows, ragged.replace(sums).rows(), strict=True):
        ahead, want = 0.0, []
        for x in reversed(row):
            ahead = x + discount * ahead
            want.insert(0, ahead)
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))


@given(ids=st.lists(st.integers(-4, 4)))
def test_groups_are_numbered_by_first_appearance(ids):
    groups = Groups.of(torch.zeros(len(ids)), torch.tensor(ids, dtype=torch.int64))

    names = list(dict.fromkeys(ids))
    assert groups.index.tolist() == [names.index(id) for id in ids]
    assert groups.sizes.tolist() == [ids.count(name) for name in names]
