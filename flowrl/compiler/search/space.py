"""The space searched: which seats share a pool, how many GPUs a pool has, and where they lie."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import attrs

from flowrl.compiler.hardware import Machines


@attrs.frozen
class Block:
    """Equal nodes, one after another.

    Attributes:
        gpu: the kind of GPU.
        first: the first rank.
        nodes: how many nodes.
        per_node: GPUs of each.
    """

    gpu: str
    first: int
    nodes: int
    per_node: int


@attrs.frozen(order=True)
class Extent:
    """How many GPUs of which block a pool has."""

    block: int
    gpus: int


def blocks_of(machines: Machines) -> tuple[Block, ...]:
    """Return the runs of equal nodes."""
    blocks, first = [], 0
    for its, equal in groupby(machines.nodes):
        nodes = sum(1 for _ in equal)
        blocks.append(Block(its.gpu.name, first, nodes, its.count))
        first += nodes * its.count
    return tuple(blocks)


def sizes(block: Block) -> tuple[int, ...]:
    """Return the GPU counts that a pool of a block may have.

    Within a node, those that divide it. Above, whole nodes: up to 8, then those of three
    significant bits (10, 12, 14, 16, 20, ...: eight and then four sizes a doubling), and all.
    """
    within = [n for n in range(1, block.per_node) if block.per_node % n == 0]
    counts = [n for n in range(1, block.nodes + 1) if n % (1 << max(0, n.bit_length() - 3)) == 0]
    above = sorted({*counts, block.nodes})
    return tuple(within + [n * block.per_node for n in above])


def pack(extents: Sequence[Extent], blocks: Sequence[Block]) -> tuple[range, ...] | None:
    """Return the ranks of each pool, or None if they don't fit.

    In each block the largest come first, equals in order: pools of whole nodes take the next nodes,
    smaller ones the first node with room. So no pool crosses a node that it could lie in.
    """
    ranks: list[range] = [range(0)] * len(extents)
    room = [[block.per_node] * block.nodes for block in blocks]
    for i in sorted(range(len(extents)), key=lambda i: -extents[i].gpus):
        block, free, gpus = blocks[extents[i].block], room[extents[i].block], extents[i].gpus
        whole = max(1, -(-gpus // block.per_node))
        wanted = min(gpus, block.per_node)
        node = next((n for n, left in enumerate(free) if left >= wanted), len(free))
        if node + whole > len(free):
            return None
        start = block.first + (node + 1) * block.per_node - free[node]
        ranks[i] = range(start, start + gpus)
        free[node : node + whole] = [free[node] - wanted if whole == 1 else 0] * whole
    return tuple(ranks)


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to put things in groups: the group of each, numbered as they appear."""

    def extend(groups: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(groups) == count:
            yield groups
            return
        for group in range(max(groups, default=-1) + 2):
            yield from extend((*groups, group))

    yield from extend(())
