"""Who sends which slice to whom."""

from collections.abc import Iterator, Mapping

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Bundle, Shard, Sharding, bundles
from flowrl.compiler.layouts.sharding import stages
from flowrl.compiler.reshard.alias import row_in
from flowrl.compiler.reshard.holders import Holders, Index, holders_of
from flowrl.compiler.reshard.pattern import Alias, Copy, Flow, Pattern
from flowrl.compiler.reshard.traffic import Takers, Traffic
from flowrl.compiler.shapes import ModelShape
from flowrl.ir.box import Box, common, elements

Stored = Mapping[int, tuple[Shard, ...]]


@attrs.frozen
class Route:
    """From where to where a model's weights go."""

    shape: ModelShape
    src: Sharding
    dst: Sharding
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


@attrs.frozen
class Slice:
    """A part of a parameter that goes as one.

    Attributes:
        parameter: its name.
        box: which part.
        takers: who needs it.
        holders: who holds it.
        parts: into how many different boxes those who need the parameter divide it.
    """

    parameter: str
    box: Box
    takers: Holders
    holders: Holders
    parts: int


def plan_class(alike: tuple[Bundle, ...], route: Route, traffic: Traffic) -> Pattern:
    """Return how bundles that go alike go, and count their bytes in the traffic.

    A slice that anyone on a node holds comes to its ranks from there. Any other comes to the node
    once, over the network, and is handed on inside. Of several sources those that have sent least
    so far over that kind of link send first, and all take turns: ranks that hold the same on one
    node differ by at most one slice in what they send.
    """
    first, times = alike[0], len(alike)
    have, need = (p.shards(first, route.shape) for p in (route.src, route.dst))
    aliases = tuple(_aliases(have, need)) if _same_type(route) else ()
    viewed = {(alias.rank, alias.tensor) for alias in aliases}
    flows, copies = [], []
    for part in _slices(first, have, need, route.machines):
        for rank in _in_both(part):
            if (rank, _tensor(need[rank], part.parameter)) not in viewed:
                copies.append(Copy(rank, part.parameter, part.box))
                traffic.copy(rank, times * elements(part.box) * route.dst.element_bytes)
        size = elements(part.box) * route.sent_bytes
        for near, takers, holding in _sides(part):
            sources = traffic.least_loaded(holding, near=near)
            direct = len(takers) if near else _direct(takers, part, route)
            traffic.send(sources, times * direct, size, near=near)
            turn = traffic.receive(takers, direct, times, size, near=near)
            flows.append(Flow(part.parameter, part.box, takers, sources, direct, turn))
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


def _slices(bundle: Bundle, have: Stored, need: Stored, machines: Machines) -> Iterator[Slice]:
    """Yield the slices of a bundle, parameter by parameter."""
    for parameter in bundle.parameters:
        held = holders_of(parameter.name, have, machines)
        needed = holders_of(parameter.name, need, machines)
        index = Index(held)
        for box, takers in sorted(needed.items()):
            for other in index.near(box):
                shared = common(box, other)
                if shared:
                    yield Slice(parameter.name, shared, takers, held[other], len(needed))


def _in_both(part: Slice) -> Iterator[int]:
    """Yield the ranks that need a slice and hold it."""
    for node, sources in part.holders.on.items():
        there = part.takers.on.get(node, ())
        yield from (rank for rank in sources if rank in there)


def _tensor(stored: tuple[Shard, ...], parameter: str) -> str:
    """Return the stored tensor that has a parameter."""
    return next(shard.tensor for shard in stored if shard.has(parameter))


def _sides(part: Slice) -> Iterator[tuple[bool, Takers, tuple[int, ...]]]:
    """Yield whether inside a node, who lacks it there, and who may send: by node, then the rest."""
    for node, sources in part.holders.on.items():
        there = part.takers.on.get(node, ())
        lacking = tuple((rank,) for rank in there if rank not in sources)
        if lacking:
            yield True, lacking, sources
    far = part.takers.off(part.holders.nodes)
    if far:
        yield False, far, part.holders.ranks


def _direct(takers: Takers, part: Slice, route: Route) -> int:
    """Return how many nodes get a slice from those who hold it; the others get it from these.

    As many as keep the sources' network no busier than the takers': a source sends its share of
    the model to each, and a taker receives its share of a replica, divided with those on its node.
    """
    replica = part.parts * route.dst.layout.pp
    at_once = len(route.src.ranks) // (replica * max(map(len, takers)))
    return min(len(takers), max(1, at_once))
