"""What goes where for one bundle, and so for all bundles of its form."""

from collections.abc import Iterable, Iterator

import attrs

from flowrl.compiler.layouts import Bundle
from flowrl.compiler.reshard.traffic import Takers
from flowrl.ir.box import Box


@attrs.frozen
class Hop:
    """One send of a slice, the `number`-th on its way from a rank that held it before."""

    source: int
    destination: int
    number: int


@attrs.frozen
class Position:
    """Where a rank stands in a flow.

    Attributes:
        turn: of the sources, if it is one.
        place: of its group, if it gets the slice.
    """

    turn: int = 0
    place: int | None = None


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

    def hops(self, bundle: int, position: Position | None = None) -> Iterator[Hop]:
        """Yield who sends to whom, for the `bundle`-th of the bundles.

        With a rank's position, these are all hops that it takes part in, and few others.
        """
        for place in self._places(bundle, position) if position else range(len(self.takers)):
            first, group = self._first(place, bundle), self.takers[place]
            turn, number = bundle * self.direct + place, place // self.direct
            source = self.sources[turn % len(self.sources)]
            if number:
                source = self._first(place - self.direct, bundle)
            yield Hop(source, first, number)
            yield from (Hop(first, other, number + 1) for other in group if other != first)

    def position(self, rank: int) -> Position | None:
        """Return where a rank stands that may send or get the slice."""
        if rank in self.sources:
            return Position(turn=self.sources.index(rank))
        places = (place for place, group in enumerate(self.takers) if rank in group)
        return next((Position(place=place) for place in places), None)

    @property
    def passed_on(self) -> int:
        """How many ranks get it from one that didn't hold it before."""
        return sum(map(len, self.takers)) - min(self.direct, len(self.takers))

    def _first(self, place: int, bundle: int) -> int:
        """Return which rank of a group gets the slice for the others."""
        group = self.takers[place]
        return group[(self.turn + bundle) % len(group)]

    def _places(self, bundle: int, position: Position) -> Iterable[int]:
        """Return which groups a rank may send to, and in which it is."""
        if position.place is not None:
            return range(len(self.takers))[position.place :: self.direct][:2]
        count = len(self.sources)
        mine = (position.turn - bundle * self.direct) % count
        return range(mine, min(self.direct, len(self.takers)), count)


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

    def flows_of(self, rank: int | None) -> tuple[tuple[Flow, Position | None], ...]:
        """Return the flows that concern a rank and its position in each, or all flows."""
        if rank is None:
            return tuple((flow, None) for flow in self.flows)
        positions = ((flow, flow.position(rank)) for flow in self.flows)
        return tuple((flow, position) for flow, position in positions if position)
