"""Weights that arrive otherwise than they were sent are told, with their names and ranks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.layouts import Storage
from flowrl.runtime.reshard import CheckedPart, Slice
from flowrl.runtime.reshard.checksums import checksum
from tests.compiler.layouts.models import placed, small
from tests.runtime.reshard.carried import (
    RANKS,
    Case,
    Fault,
    FlippedBit,
    LostBuffer,
    SwappedRows,
    told,
)

CASE = Case(
    small("llama"), placed("fsdp4", element_bytes=4), placed("tp2 x dp2", 2, storage=Storage.ENGINE)
)


def test_a_reshard_in_which_nothing_goes_wrong_is_not_told(on_ranks):
    assert on_ranks(told, CASE, Fault()) == [""] * RANKS


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            FlippedBit(5),
            snapshot("""\
weights are not what was sent, after the reshard `fsdp4 -> tp2 x dp2`: `model.norm.weight` on rank 5
help: start again from a checkpoint; memory or links that alter bits fail again soon\
"""),
        ),
        (
            SwappedRows(4),
            snapshot("""\
weights are not what was sent, after the reshard `fsdp4 -> tp2 x dp2`: `model.layers.1.mlp.down_proj.weight` on rank 4
help: start again from a checkpoint; memory or links that alter bits fail again soon\
"""),
        ),
        (
            LostBuffer(3),
            snapshot("""\
weights are not what was sent, after the reshard `fsdp4 -> tp2 x dp2`: `model.layers.0.self_attn.o_proj.weight` on rank 3, and 15 more parameters
help: start again from a checkpoint; memory or links that alter bits fail again soon\
"""),
        ),
    ],
)
def test_all_ranks_tell_what_differs_and_where(fault, message, on_ranks):
    assert on_ranks(told, CASE, fault) == [message] * RANKS


def sum_of(values, box, shape):
    of = CheckedPart(0, "w", shape, box, Slice("w", box))
    return checksum(values[tuple(slice(*span) for span in box)], of, torch.float32).item()


def numbers(shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


@given(st.lists(st.integers(2, 6), min_size=1, max_size=3), st.data())
def test_the_sums_of_two_parts_add_up_to_that_of_both(shape, data):
    whole = [(0, size) for size in shape]
    dim = data.draw(st.integers(0, len(shape) - 1))
    cut = data.draw(st.integers(1, shape[dim] - 1))
    low, high = ([*whole[:dim], span, *whole[dim + 1 :]] for span in ((0, cut), (cut, shape[dim])))

    values = numbers(shape)

    both = sum_of(values, low, shape) + sum_of(values, high, shape)
    assert (both - sum_of(values, whole, shape)) % 2**64 == 0


@given(st.lists(st.integers(2, 6), min_size=1, max_size=3), st.data())
def test_numbers_that_change_places_change_the_sum(shape, data):
    whole, values = [(0, size) for size in shape], numbers(shape)
    places = st.integers(0, math.prod(shape) - 1)
    a, b = data.draw(st.lists(places, min_size=2, max_size=2, unique=True))
    swapped = values.clone()
    swapped.view(-1)[[a, b]] = values.view(-1)[[b, a]]

    assert sum_of(values, whole, shape) != sum_of(swapped, whole, shape)


def test_large_parts_are_read_in_pieces_of_the_same_sum(monkeypatch):
    values, box = numbers([9, 4]), [(0, 9), (0, 4)]
    at_once = sum_of(values, box, [9, 4])

    monkeypatch.setattr("flowrl.runtime.reshard.checksums.AT_ONCE", 8)

    assert sum_of(values, box, [9, 4]) == at_once
