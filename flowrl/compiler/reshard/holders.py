"""Who holds which part of a parameter."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts.shard import Shard
from flowrl.compiler.reshard.traffic import Takers
from flowrl.ir.box import Box


@attrs.frozen
class Holders:
    """The ranks that hold one box.

    Attributes:
        ranks: in ascending order.
        on: the same, by the node that they are on.
    """

    ranks: tuple[int, ...]
    on: Mapping[int, tuple[int, ...]]
    _off: dict[tuple[int, ...], Takers] = attrs.field(factory=dict, init=False, eq=False)

    @classmethod
    def of(cls, ranks: Iterable[int], machines: Machines) -> "Holders":
        """Return ranks with their nodes."""
        ordered = tuple(sorted(ranks))
        on = {node: tuple(there) for node, there in groupby(ordered, machines.node)}
        return cls(ordered, on)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Where any of them is."""
        return tuple(self.on)

    def off(self, nodes: tuple[int, ...]) -> Takers:
        """Return those of them that are on other nodes than these, node by node."""
        if nodes not in self._off:
            self._off[nodes] = tuple(there for node, there in self.on.items() if node not in nodes)
        return self._off[nodes]


def holders_of(
    parameter: str, stored: Mapping[int, tuple[Shard, ...]], machines: Machines
) -> dict[Box, Holders]:
    """Return who holds each box of a parameter; different boxes of one layout share nothing."""
    found: dict[Box, list[int]] = {}
    for rank, shards in stored.items():
        for shard in shards:
            for piece in shard.pieces:
                if piece.parameter == parameter:
                    found.setdefault(piece.box, []).append(rank)
    return {box: Holders.of(ranks, machines) for box, ranks in found.items()}


class Index:
    """Boxes sorted along the dim that tells most of them apart."""

    def __init__(self, boxes: Iterable[Box]) -> None:
        boxes = list(boxes)
        dims = range(len(boxes[0]) if boxes else 0)
        self._dim = max(dims, key=lambda dim: len({box[dim] for box in boxes}), default=0)
        self._boxes = sorted(boxes, key=lambda box: (box[self._dim], box))
        spans = [box[self._dim] for box in self._boxes]
        self._starts = [start for start, _ in spans]
        self._longest = max((stop - start for start, stop in spans), default=0)

    def near(self, box: Box) -> Iterator[Box]:
        """Yield, in one order, every box that may share something with this one."""
        start, stop = box[self._dim]
        first = bisect_right(self._starts, start - self._longest)
        yield from self._boxes[first : bisect_left(self._starts, stop)]
