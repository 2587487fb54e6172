"""The tree of decisions: who shares a pool, its extent, then each seat's residency and layout."""

from collections.abc import Iterator
from functools import cache

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.cost.step import Slot, slots
from flowrl.compiler.search.space import Extent, pack, partitions
from flowrl.compiler.search.table import Choices, Near, Table
from flowrl.compiler.search.terms import Option


@attrs.frozen
class Partition:
    """Which seats share a pool.

    Attributes:
        pools: the seats of each pool, by number.
        pool_of: the pool of each seat.
        slots: what each task waits for.
    """

    pools: tuple[tuple[int, ...], ...]
    pool_of: tuple[int, ...]
    slots: tuple[Slot, ...]


@attrs.frozen
class Node:
    """A placement decided so far: extents of the first pools, then residencies, then layouts.

    Attributes:
        partition: which seats share a pool.
        extents: of its pools.
        residencies: of the seats, in the order of `Tree.order`.
        options: of the seats, in that order.
        priced: for how many of the options it is known what bringing the weights costs.
    """

    partition: Partition
    extents: tuple[Extent, ...] = ()
    residencies: tuple[Residency, ...] = ()
    options: tuple[Option, ...] = ()
    priced: int = 0

    @property
    def depth(self) -> int:
        """How many decisions were made."""
        return len(self.extents) + len(self.residencies) + len(self.options)


class Tree:
    """Every placement, as the leaves of a tree of decisions.

    Attributes:
        table: what seats and pools cost.
        order: in which seats are decided: model by model, the one that takes longest first, since
            its choices leave the others least; of a model, the seat that trains it.
        place: of each seat in that order.
        gpus: that may be used.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.order = self._heaviest_first()
        self.place = {seat: i for i, seat in enumerate(self.order)}
        size = table.costs.machines.size
        self.gpus = min(table.constraints.most_gpus or size, size)
        self.ranks = cache(self._ranks)
        self.near = cache(self._near)

    def _heaviest_first(self) -> list[int]:
        table, seats = self.table, range(len(self.table.seats))
        taken: dict[str, float] = {}
        for seat in seats:
            role = table.seats[seat].role
            taken[role] = max(taken.get(role, 0.0), table.least_seconds(seat))
        roles = sorted(taken, key=lambda role: (-taken[role], role))
        place = {role: i for i, role in enumerate(roles)}
        return sorted(
            seats, key=lambda s: (place[table.seats[s].role], table.trainer[s] is not None, s)
        )

    def roots(self) -> Iterator[Node]:
        """Yield every way to share pools that the user allows, if each pool fits in some extent."""
        table = self.table
        for groups in partitions(len(table.seats)):
            if not table.constraints.allow(table.seats, groups):
                continue
            pools = tuple(
                tuple(seat for seat, its in enumerate(groups) if its == group)
                for group in range(max(groups) + 1)
            )
            if all(table.extents(pool) for pool in pools):
                yield Node(Partition(pools, groups, slots(table.tasks, table.seats, groups)))

    def complete(self, node: Node) -> bool:
        """Return whether everything is decided."""
        return len(node.options) == len(self.order)

    def children(self, node: Node) -> Iterator[Node]:
        """Yield the node with one more decision, in each way that is possible."""
        if len(node.extents) < len(node.partition.pools):
            yield from self._with_extent(node)
        elif len(node.residencies) < len(self.order):
            seat = self.order[len(node.residencies)]
            for residency in self.choices(node, seat):
                if residency != "alias" or self._trains_resident(node, seat):
                    yield attrs.evolve(node, residencies=(*node.residencies, residency))
        else:
            seat = self.order[len(node.options)]
            for option in self.choices(node, seat)[node.residencies[len(node.options)]]:
                child = attrs.evolve(node, options=(*node.options, option))
                if option.residency != "alias" or self._aliases(child, seat):
                    yield child

    def _with_extent(self, node: Node) -> Iterator[Node]:
        room = self.room(node)
        for extent in self.table.extents(node.partition.pools[len(node.extents)]):
            extents = (*node.extents, extent)
            if extent.gpus <= room and self.ranks(extents) is not None:
                yield attrs.evolve(node, extents=extents)

    def room(self, node: Node) -> int:
        """Return the most GPUs that the next pool may have, so that later ones have some."""
        later = node.partition.pools[len(node.extents) + 1 :]
        used = sum(extent.gpus for extent in node.extents)
        return self.gpus - used - sum(self.table.extents(pool)[0].gpus for pool in later)

    def choices(self, node: Node, seat: int) -> Choices:
        """Return what a seat may choose once its pool has an extent."""
        number = node.partition.pool_of[seat]
        pool = node.partition.pools[number]
        choices = self.table.choices(pool, node.extents[number])
        assert choices is not None, "a pool has only extents that may fit"
        return choices[pool.index(seat)]

    def source(self, node: Node, seat: int) -> tuple[Option, Near] | None:
        """Return from where weights come to a seat, once both have a layout, and how they lie."""
        trainer = self.table.trainer[seat]
        if trainer is None or len(node.options) <= max(self.place[seat], self.place[trainer]):
            return None
        a, b = (node.partition.pool_of[s] for s in (trainer, seat))
        near = "same" if a == b else self.near(node.extents, a, b)
        return node.options[self.place[trainer]], near

    def _near(self, extents: tuple[Extent, ...], a: int, b: int) -> Near:
        where, node = self.ranks(extents), self.table.costs.machines.node
        assert where is not None, "only extents that lie together are tried"
        nodes = [{node(where[pool][0]), node(where[pool][-1])} for pool in (a, b)]
        return "node" if nodes[0] & nodes[1] else "apart"

    def _trains_resident(self, node: Node, seat: int) -> bool:
        trainer = self.table.trainer[seat]
        return trainer is not None and node.residencies[self.place[trainer]] == "resident"

    def _aliases(self, node: Node, seat: int) -> bool:
        source, option = self.source(node, seat), node.options[self.place[seat]]
        return source is not None and self.table.costs.aliases(source[0].seated, option.seated)

    def _ranks(self, extents: tuple[Extent, ...]) -> tuple[range, ...] | None:
        return pack(extents, self.table.blocks)
