"""Who communicates along an axis of a layout, and what it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.compiler.cost.links import Group, crossing_seconds, group, slowest
from flowrl.compiler.hardware import Machines
from flowrl.ir.layout import Layout

FOUR = Machines.parse("4x8xH100")
groups = st.builds(Group, st.integers(1, 64), st.floats(1e9, 1e12), st.floats(0, 1e-4))


def along(axis, layout, machines=FOUR, first=0):
    parsed = Layout.parse(layout)
    return group(machines, parsed, axis, range(first, first + parsed.size))


def test_neighbours_of_tensor_parallelism_share_a_node():
    assert along("tp", "tp8 x dp4") == Group(8, 450e9, 3.4e-6)


def test_replicas_with_one_rank_a_node_have_one_share_of_the_network():
    assert along("dp", "tp8 x dp4") == Group(4, 50e9, 14e-6)


def test_ranks_of_a_node_use_their_shares_of_the_network_together():
    assert along("fsdp", "fsdp32") == Group(32, 400e9, 14e-6)
    assert along("fsdp", "tp2 x fsdp16") == Group(16, 200e9, 14e-6)


def test_an_axis_of_one_needs_nothing():
    assert along("pp", "fsdp32").all_reduce(1e9) == 0
    assert along("pp", "fsdp32").send(1e9) == 0


def test_an_all_reduce_sends_each_byte_less_than_twice():
    four = Group(4, 100.0, 0.0)

    assert four.all_gather(400) == 3
    assert four.all_reduce(400) == 6


@given(groups, st.floats(0, 1e12), st.floats(0, 1e12))
def test_more_bytes_are_never_faster(ranks, size, more):
    for collective in (ranks.all_gather, ranks.all_reduce, ranks.all_to_all, ranks.send):
        assert collective(size + more) >= collective(size)


def test_of_several_kinds_the_least_of_each_number_counts():
    mixed = slowest(Machines.parse("1xH100 + 1xA100-80G"), range(2))

    assert mixed.name == "A100-80G"
    assert mixed.bf16_flops == 312e12
    assert mixed.memory_bytes == 81_559 * 2**20


def test_data_cross_by_all_ranks_of_the_smaller_pool():
    one = crossing_seconds(FOUR, 1e9, range(8), range(8, 9))
    eight = crossing_seconds(FOUR, 1e9, range(8), range(8, 16))

    assert one == pytest.approx(1e9 / 50e9, rel=1e-3)
    assert eight == pytest.approx(1e9 / 400e9, rel=1e-2)
