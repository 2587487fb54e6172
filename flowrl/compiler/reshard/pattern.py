"""What goes where for one bundle, and so for all bundles of its form."""

from collections.abc import Iterator

import attrs

from flowrl.compiler.layouts import Bundle
from flowrl.compiler.layouts.box import Box
from flowrl.compiler.reshard.traffic import Takers


@attrs.frozen
class Hop:
    """One send of a slice, the `number`-th on its way from a rank that held it before."""

    source: int
    destination: int
    number: int


@attrs.frozen
class Flow:
    """A slice of a parameter that some ranks lack, and how it comes to them.

    Attributes:
        parameter: of the first bundle; see `Bundle.names_in`.
        box: the slice.
        takers: who lacks it; one of each group gets it from elsewhere and hands it to the others.
        sources: who holds it, as near to the takers as any; they send in turns.
        direct: how many groups get it from the sources. Every other group gets it from the one
            that stands so many places before it.
        turn: whose turn it is first in each group.
    """

    parameter: str
    box: Box
    takers: Takers
    sources: tuple[int, ...]
    direct: int
    turn: int

    def hops(self, bundle: int) -> Iterator[Hop]:
        """Yield who sends to whom, for the `bundle`-th of the bundles."""
        sources, direct = self.sources, self.direct
        firsts = [group[(self.turn + bundle) % len(group)] for group in self.takers]
        for place, (first, group) in enumerate(zip(firsts, self.takers, strict=True)):
            turn = bundle * direct + place
            source = sources[turn % len(sources)] if place < direct else firsts[place - direct]
            number = place // direct
            yield Hop(source, first, number)
            yield from (Hop(first, rank, number + 1) for rank in group if rank != first)

    def concerns(self, rank: int) -> bool:
        """Whether a rank may send or get the slice."""
        return rank in self.sources or any(rank in group for group in self.takers)


@attrs.frozen
class Copy:
    """A slice that a rank holds already, in another tensor or another type."""

    rank: int
    parameter: str
    box: Box


@attrs.frozen
class Alias:
    """A tensor that is a part of one that its rank holds already: nothing is copied.

    Attributes:
        rank: where.
        tensor: what is needed.
        held: the tensor that it is a view of.
        start: the first row of the view.
    """

    rank: int
    tensor: str
    held: str
    start: int


@attrs.frozen(eq=False)
class Pattern:
    """How bundles of one form go from one sharding to another.

    Attributes:
        bundles: alike in form; the names below are those of the first.
        flows: what goes over links.
        copies: what ranks copy.
        aliases: what ranks needn't copy.
    """

    bundles: tuple[Bundle, ...]
    flows: tuple[Flow, ...]
    copies: tuple[Copy, ...]
    aliases: tuple[Alias, ...]

    def flows_of(self, rank: int | None) -> tuple[Flow, ...]:
        """Return the flows that concern a rank, or all."""
        return tuple(flow for flow in self.flows if rank is None or flow.concerns(rank))
