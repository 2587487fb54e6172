"""The least that a placement decided so far can come to."""

from collections.abc import Sequence
from functools import cache

from flowrl.compiler.cost.step import Timeline, timeline
from flowrl.compiler.search.terms import Terms, least
from flowrl.compiler.search.tree import Node, Tree

Key = tuple[float, int, int]
"""What is made small: a step's seconds; among equals, GPUs; then bytes moved over links."""


class Bounds:
    """Bounds that no completion of a node stays under, exact for complete nodes.

    What is undecided counts at the least of its choices, each number by itself; to bring weights
    between layouts not yet known counts nothing, and until it is priced its floor. Since every end
    of a timeline grows with each number, the step is too short at most; nothing here assumes that
    more GPUs are faster, or that seconds and bytes depend on each other.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree, self.table = tree, tree.table
        self._in_room = cache(self._least_in_room)

    def key(self, node: Node) -> Key | None:
        """Return the least key of any completion, or None if none fits."""
        terms = self._terms(node)
        if terms is None or not self._fits(node, terms):
            return None
        refresh, moved = self._brought(node)
        seconds = self._timeline(node, terms, refresh).seconds
        extents, pools = node.extents, node.partition.pools
        later = sum(self.table.extents(pool)[0].gpus for pool in pools[len(extents) :])
        return seconds, sum(extent.gpus for extent in extents) + later, moved

    def timeline(self, node: Node) -> Timeline:
        """Return when each task of a complete node runs."""
        terms = self._terms(node)
        assert terms is not None, "a complete node has all its terms"
        return self._timeline(node, terms, self._brought(node)[0])

    def _timeline(self, node: Node, terms: Sequence[Terms], refresh: Sequence[float]) -> Timeline:
        table, place = self.table, self.tree.place
        seconds = [0.0] * len(table.tasks)
        for work, its in zip(table.work, terms, strict=True):
            for task, taken in zip(work, its.seconds, strict=True):
                seconds[task] = taken
        known = node.residencies
        drops = [place[s] < len(known) and known[place[s]] == "drop" for s in range(len(terms))]
        wake, sleep = [t.wake for t in terms], [t.sleep for t in terms]
        return timeline(node.partition.slots, seconds, wake, sleep, refresh, drops)

    def _terms(self, node: Node) -> list[Terms] | None:
        """Return the least terms of each seat, by number; None if a pool has no room left."""
        out: list[Terms | None] = [None] * len(self.table.seats)
        room = self.tree.room(node) if len(node.extents) < len(node.partition.pools) else 0
        for number, pool in enumerate(node.partition.pools):
            if number >= len(node.extents):
                lows = self._in_room(pool, room + self._kept(node, number))
                if lows is None:
                    return None
                for seat, its in zip(pool, lows, strict=True):
                    out[seat] = its
                continue
            for seat in pool:
                out[seat] = self._of(node, seat, pool, number)
        return out  # type: ignore[return-value]

    def _kept(self, node: Node, number: int) -> int:
        """Return how many more GPUs are kept for an undecided pool than for the next."""
        extents, pools = self.table.extents, node.partition.pools
        return extents(pools[number])[0].gpus - extents(pools[len(node.extents)])[0].gpus

    def _of(self, node: Node, seat: int, pool: tuple[int, ...], number: int) -> Terms:
        at = self.tree.place[seat]
        if at < len(node.options):
            return node.options[at]
        residency = node.residencies[at] if at < len(node.residencies) else None
        return self.table.floor(pool, node.extents[number], seat, residency)

    def _fits(self, node: Node, terms: Sequence[Terms]) -> bool:
        return all(
            self.table.fits(tuple(terms[seat] for seat in pool), extent)
            for pool, extent in zip(node.partition.pools, node.extents, strict=False)
        )

    def _brought(self, node: Node) -> tuple[list[float], int]:
        """Return the seconds to bring each seat's weights once, and all bytes moved in a step."""
        refresh, moved = [0.0] * len(self.table.seats), 0
        for seat in self.tree.order[: len(node.options)]:
            source, option = self.tree.source(node, seat), node.options[self.tree.place[seat]]
            if source is None or option.residency == "alias":
                continue
            exact = self.tree.place[seat] < node.priced
            once, refresh[seat] = self.table.bring(source[0], option, source[1], exact)
            for slot in node.partition.slots:
                if slot.seat == seat:
                    drops = option.residency == "drop"
                    moved += once * len(slot.brought(drops=drops))
        return refresh, moved

    def _least_in_room(self, pool: tuple[int, ...], room: int) -> tuple[Terms, ...] | None:
        """Return the least of each seat of a pool over extents of at most `room` GPUs."""
        extents = [extent for extent in self.table.extents(pool) if extent.gpus <= room]
        if not extents:
            return None
        floor = self.table.floor
        return tuple(least(floor(pool, extent, seat, None) for extent in extents) for seat in pool)
