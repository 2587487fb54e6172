"""Who sends which slice to whom."""

from collections.abc import Iterator, Mapping

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Bundle, Placement, Shard, bundles
from flowrl.compiler.layouts.box import Box, common, elements
from flowrl.compiler.layouts.placement import stages
from flowrl.compiler.reshard.alias import row_in
from flowrl.compiler.reshard.holders import Holders, Index, holders_of
from flowrl.compiler.reshard.pattern import Alias, Copy, Flow, Pattern
from flowrl.compiler.reshard.traffic import Traffic
from flowrl.compiler.shapes import ModelShape

Stored = Mapping[int, tuple[Shard, ...]]


@attrs.frozen
class Route:
    """From where to where a model's weights go."""

    shape: ModelShape
    src: Placement
    dst: Placement
    machines: Machines

    @property
    def sent_bytes(self) -> int:
        """Of an element on a link: it is narrowed before it is sent, and widened after."""
        return min(self.src.element_bytes, self.dst.element_bytes)

    def classes(self) -> tuple[tuple[Bundle, ...], ...]:
        """Return the bundles, those together that go alike: of one form, on the same stages."""
        alike: dict[object, list[Bundle]] = {}
        for bundle in bundles(self.shape):
            on = (stages(bundle, self.shape.layers, p.layout.pp) for p in (self.src, self.dst))
            alike.setdefault((bundle.form, *on), []).append(bundle)
        return tuple(map(tuple, alike.values()))


def plan_class(alike: tuple[Bundle, ...], route: Route, traffic: Traffic) -> Pattern:
    """Return how bundles that go alike go, and count their bytes in the traffic.

    Every slice comes from the same node if anyone there holds it; of several, those who have sent
    least so far over that kind of link send first, and all take turns. So ranks that hold the same
    on one node differ by at most one slice in what they send.
    """
    first, times = alike[0], len(alike)
    have, need = (p.shards(first, route.shape) for p in (route.src, route.dst))
    aliases = tuple(_aliases(have, need)) if _same_type(route) else ()
    viewed = {(alias.rank, alias.tensor) for alias in aliases}
    flows, copies = [], []
    for parameter in first.parameters:
        tensors = {r: s.tensor for r, ss in need.items() for s in ss if s.has(parameter.name)}
        for box, takers, holders in _slices(parameter.name, have, need, route.machines):
            for rank in _in_both(takers, holders):
                if (rank, tensors[rank]) not in viewed:
                    copies.append(Copy(rank, parameter.name, box))
                    traffic.copy(rank, times * elements(box) * route.dst.element_bytes)
            size = elements(box) * route.sent_bytes
            for near, lacking, holding in _sides(takers, holders):
                sources = traffic.least_loaded(holding, near=near)
                traffic.send(sources, times * len(lacking), size, near=near)
                traffic.receive(lacking, times * size, near=near)
                flows.append(Flow(parameter.name, box, lacking, sources))
    return Pattern(alike, tuple(flows), tuple(copies), aliases)


def _same_type(route: Route) -> bool:
    return route.src.element_bytes == route.dst.element_bytes


def _aliases(have: Stored, need: Stored) -> Iterator[Alias]:
    for rank in sorted(have.keys() & need.keys()):
        for needed in need[rank]:
            rows = ((held, row_in(held, needed)) for held in have[rank])
            found = next(((held.tensor, row) for held, row in rows if row is not None), None)
            if found:
                yield Alias(rank, needed.tensor, *found)


def _slices(
    parameter: str, have: Stored, need: Stored, machines: Machines
) -> Iterator[tuple[Box, Holders, Holders]]:
    """Yield the slices of a parameter that go as one, with those who need and who hold them."""
    held = holders_of(parameter, have, machines)
    index = Index(held)
    for box, takers in sorted(holders_of(parameter, need, machines).items()):
        for other in index.near(box):
            shared = common(box, other)
            if shared:
                yield shared, takers, held[other]


def _in_both(takers: Holders, holders: Holders) -> Iterator[int]:
    """Yield the ranks that need a slice and hold it."""
    for node, sources in holders.on.items():
        there = takers.on.get(node, ())
        yield from (rank for rank in sources if rank in there)


def _sides(
    takers: Holders, holders: Holders
) -> Iterator[tuple[bool, tuple[int, ...], tuple[int, ...]]]:
    """Yield whether inside a node, who lacks it there, and who may send: by node, then the rest."""
    for node, sources in holders.on.items():
        lacking = tuple(rank for rank in takers.on.get(node, ()) if rank not in sources)
        if lacking:
            yield True, lacking, sources
    far = takers.off(holders.nodes)
    if far:
        yield False, far, holders.ranks
