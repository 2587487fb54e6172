"""Reshard plans: all that is sent, copied or shared to bring weights to another sharding."""

from collections.abc import Iterator

import attrs

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, check_fit
from flowrl.compiler.reshard.bound import lower_bound
from flowrl.compiler.reshard.pattern import Alias, Copy, Pattern
from flowrl.compiler.reshard.planning import Route, plan_class
from flowrl.compiler.reshard.traffic import Load, Traffic
from flowrl.compiler.shapes import ModelShape
from flowrl.errors import RunFileError
from flowrl.ir.box import Box, elements


@attrs.frozen
class Send:
    """A slice of a parameter that one rank sends to another.

    Attributes:
        source: who has it.
        destination: who lacks it.
        parameter: its name in the state dict.
        box: the slice.
        bytes: how many go over the link.
        hop: 0 from a rank that held it before; 1 from one that got it by a send of hop 0; ...
    """

    source: int
    destination: int
    parameter: str
    box: Box
    bytes: int
    hop: int = 0


@attrs.frozen
class ReshardPlan:
    """How weights come from one sharding to another.

    Every element that a rank needs and lacks is sent to it once, and nothing else is sent. To a
    node on which no rank holds it, it comes over the network once. What is alike in all layers is
    stored once; `sends`, `copies` and `aliases` write it out, in the order of the model, the same
    on every machine.

    Attributes:
        src: where they are.
        dst: where they are needed.
        patterns: for the bundles of each form.
        sent_bytes: of an element on a link.
        bytes_moved: over all links.
        bytes_copied: inside GPUs.
        lower_bound: of the bytes moved, counted rank by rank.
        bottleneck: the link that takes longest.
        seconds: see `Traffic.seconds`.
    """

    src: Sharding
    dst: Sharding
    patterns: tuple[Pattern, ...]
    sent_bytes: int
    bytes_moved: int
    bytes_copied: int
    lower_bound: int
    bottleneck: Load
    seconds: float

    @property
    def ratio(self) -> float:
        """Bytes moved for each byte that has to be."""
        return self.bytes_moved / self.lower_bound if self.lower_bound else 1.0

    def sends(self, rank: int | None = None) -> Iterator[Send]:
        """Yield what goes over links; with a rank, what it sends or gets."""
        flows = {pattern: pattern.flows_of(rank) for pattern in self.patterns}
        for pattern, index, names in self.turns():
            for flow, position in flows[pattern]:
                name, size = names[flow.parameter], elements(flow.box) * self.sent_bytes
                for hop in flow.hops(index, position):
                    if rank is None or rank in (hop.source, hop.destination):
                        yield Send(hop.source, hop.destination, name, flow.box, size, hop.number)

    def copies(self, rank: int | None = None) -> Iterator[Copy]:
        """Yield what ranks copy from tensors that they hold; with a rank, what it does."""
        copies = {p: tuple(c for c in p.copies if rank in (None, c.rank)) for p in self.patterns}
        for pattern, _, names in self.turns():
            for copy in copies[pattern]:
                yield attrs.evolve(copy, parameter=names[copy.parameter])

    def aliases(self, rank: int | None = None) -> Iterator[Alias]:
        """Yield the tensors that are views of what their ranks hold; with a rank, its own."""
        aliases = {p: tuple(a for a in p.aliases if rank in (None, a.rank)) for p in self.patterns}
        for pattern, _, names in self.turns():
            for alias in aliases[pattern]:
                tensor, held = names[alias.tensor], names[alias.held]
                yield attrs.evolve(alias, tensor=tensor, held=held)

    def turns(self) -> Iterator[tuple[Pattern, int, dict[str, str]]]:
        """Yield each bundle, layer by layer: its pattern, its number in it, and its names there."""
        turns = [
            (bundle.layer is None, bundle.layer or 0, pattern, index, bundle)
            for pattern in self.patterns
            for index, bundle in enumerate(pattern.bundles)
        ]
        for _, _, pattern, index, bundle in sorted(turns, key=lambda turn: turn[:2]):
            yield pattern, index, pattern.bundles[0].names_in(bundle)

    def __str__(self) -> str:
        return (
            f"{self.src.layout} -> {self.dst.layout}: {self.bytes_moved} bytes over links "
            f"({self.ratio:.2f} of the lower bound), {self.bytes_copied} copied, "
            f"{self.seconds:.3g} s: {self.bottleneck.link}"
        )


def plan_reshard(
    shape: ModelShape, src: Sharding, dst: Sharding, machines: Machines
) -> ReshardPlan:
    """Return how a model's weights come from one sharding to another.

    Raises:
        RunFileError: the model can't have one of the layouts, or a rank is no GPU of the machines.
    """
    route = checked(Route(shape, src, dst, machines))
    classes, traffic = route.classes(), Traffic(machines)
    patterns = tuple(plan_class(alike, route, traffic) for alike in classes)
    return ReshardPlan(
        src=src,
        dst=dst,
        patterns=patterns,
        sent_bytes=route.sent_bytes,
        bytes_moved=traffic.moved,
        bytes_copied=traffic.copied,
        lower_bound=lower_bound(route, classes),
        bottleneck=traffic.busiest(),
        seconds=traffic.seconds(),
    )


def checked(route: Route) -> Route:
    """Return a route whose layouts fit the model and whose ranks exist."""
    for sharding in (route.src, route.dst):
        check_fit(route.shape, sharding.layout)
        if not all(0 <= rank < route.machines.size for rank in sharding.ranks):
            raise RunFileError(
                f"the layout `{sharding.layout}` lies on the ranks "
                f"{min(sharding.ranks)} to {max(sharding.ranks)}; "
                f"`{route.machines}` has 0 to {route.machines.size - 1}",
                hint="give more GPUs, or smaller pools",
            )
    return route
