"""Of all placements, the one that lacks the fewest bytes, where none fits."""

from collections.abc import Mapping, Sequence

import attrs

from flowrl.compiler.search.bound import Bounds, Key
from flowrl.compiler.search.branch import best
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.costs import Costs
from flowrl.compiler.search.space import Extent
from flowrl.compiler.search.table import Table
from flowrl.compiler.search.terms import excess
from flowrl.compiler.search.tree import Node, Tree
from flowrl.compiler.tasks import Task

LIMITLESS = (1 << 62, 1 << 62)


@attrs.frozen
class Peak:
    """The worst moment of the GPU that lacks most, in bytes.

    Attributes:
        gpus: of its pool.
        capacity: of the GPU, or of its share of the host's memory.
        lacks: how much more would be needed.
        working: the seat that works then, with layout and residency; none if the host lacks.
        items: what that one takes, by what they are.
        others: what each other seat takes meanwhile, or each seat of the host.
    """

    gpus: int
    capacity: int
    lacks: int
    working: str
    items: Mapping[str, int]
    others: Mapping[str, int]


def nearest(tasks: Sequence[Task], costs: Costs, constraints: Constraints) -> Peak | None:
    """Return the peak of the placement that lacks least, or None if constraints allow none."""
    bounds = _Lack(Tree(_Limitless(tasks, costs, constraints)))
    node, _ = best(bounds.tree, bounds)
    if node is None:
        return None
    lacks = [bounds.lack(node, number) for number in range(len(node.partition.pools))]
    return _peak(node, bounds.tree, lacks.index(max(lacks)))


class _Limitless(Table):
    """A table in which everything fits."""

    def _capacity(self, extent: Extent) -> tuple[int, int]:
        return LIMITLESS


class _Lack(Bounds):
    """Bounds of the bytes that the fullest GPU or host lacks, in place of seconds."""

    def key(self, node: Node) -> Key | None:
        pools = node.partition.pools
        if len(node.extents) < len(pools) and self.tree.room(node) <= 0:
            return None
        lacks = [self.lack(node, number) for number in range(len(node.extents))]
        gpus = sum(extent.gpus for extent in node.extents)
        return float(max(lacks, default=0)), gpus, 0

    def lack(self, node: Node, number: int) -> int:
        """Return the least that a pool lacks, 0 if it may fit."""
        pool, extent = node.partition.pools[number], node.extents[number]
        terms = [self._of(node, seat, pool, number) for seat in pool]
        return max(0, excess(terms, self.table.costs.capacity(self.table.ranks(extent))))


def _peak(node: Node, tree: Tree, number: int) -> Peak:
    """Return the worst moment of a pool of a complete node."""
    table, pool, extent = tree.table, node.partition.pools[number], node.extents[number]
    gpu, host = table.costs.capacity(table.ranks(extent))
    chosen = {seat: node.options[tree.place[seat]] for seat in pool}
    names = {s: f"{table.seats[s]} ({o.seated.layout}, {o.residency})" for s, o in chosen.items()}
    kept = {seat: option.bytes.host for seat, option in chosen.items() if option.bytes.host}
    worst = max(pool, key=lambda s: chosen[s].bytes.awake - chosen[s].bytes.asleep)
    asleep = {seat: chosen[seat].bytes.asleep for seat in pool if seat != worst}
    over = chosen[worst].bytes.awake + sum(asleep.values()) - gpu
    if sum(kept.values()) - host > over:
        others = {names[seat]: size for seat, size in kept.items()}
        return Peak(extent.gpus, host, sum(kept.values()) - host, "", {}, others)
    option = chosen[worst]
    items = table.costs.items(option.seated, option.residency)
    others = {names[seat]: size for seat, size in asleep.items()}
    return Peak(extent.gpus, gpu, over, names[worst], items, others)
