"""Which pools there may be, and where they lie."""

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.hardware import Machines
from flowrl.compiler.search.space import Extent, blocks_of, pack, partitions, sizes


def sizes_of(text):
    return [sizes(block) for block in blocks_of(Machines.parse(text))]


def test_a_pool_divides_a_node_or_has_whole_nodes():
    assert sizes_of("2x8xH100") == snapshot([(1, 2, 4, 8, 16)])
    assert sizes_of("6xA10") == snapshot([(1, 2, 3, 6)])
    assert sizes_of("3x1xA10") == snapshot([(1, 2, 3)])


def test_above_eight_nodes_sizes_have_three_significant_bits_and_all_is_one():
    (found,) = sizes_of("37x8xH100")

    assert [size // 8 for size in found if size >= 8] == snapshot(
        [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 37]
    )


def test_nodes_of_another_kind_or_size_are_another_block():
    blocks = blocks_of(Machines.parse("2x8xH100 + 4xH100 + 8xA100-80G"))

    assert [(b.gpu, b.first, b.nodes, b.per_node) for b in blocks] == snapshot(
        [("H100", 0, 2, 8), ("H100", 16, 1, 4), ("A100-80G", 20, 1, 8)]
    )


@given(st.lists(st.sampled_from([1, 2, 4, 8, 16, 24]), min_size=1, max_size=6))
def test_packed_pools_are_apart_and_cross_no_node_that_they_could_lie_in(gpus):
    machines = Machines.parse("5x8xH100")
    extents = [Extent(0, n) for n in gpus]

    ranks = pack(extents, blocks_of(machines))

    assert (ranks is not None) == (sum(gpus) <= 40)
    if ranks is not None:
        assert [len(its) for its in ranks] == gpus
        assert len({rank for its in ranks for rank in its}) == sum(gpus)
        nodes = [{machines.node(rank) for rank in its} for its in ranks]
        assert [len(its) for its in nodes] == [-(-n // 8) for n in gpus]


def test_pools_of_other_sizes_take_whole_nodes_for_themselves():
    blocks = blocks_of(Machines.parse("3x8xH100"))

    assert pack([Extent(0, 4), Extent(0, 12)], blocks) == (range(16, 20), range(12))
    assert pack([Extent(0, 5), Extent(0, 5), Extent(0, 5), Extent(0, 5)], blocks) is None


def test_partitions_are_counted_by_bell():
    assert [len(set(partitions(n))) for n in range(1, 7)] == [1, 2, 5, 15, 52, 203]
