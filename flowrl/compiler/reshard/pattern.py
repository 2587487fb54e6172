"""What goes where for one bundle, and so for all bundles of its form."""

from collections.abc import Iterator

import attrs

from flowrl.compiler.layouts import Bundle
from flowrl.compiler.layouts.box import Box


@attrs.frozen
class Flow:
    """A slice of a parameter that some ranks lack, and who may send it.

    Attributes:
        parameter: of the first bundle; see `Bundle.names_in`.
        box: the slice.
        takers: who lacks it.
        sources: who holds it, as near to the takers as any; they send in turns.
    """

    parameter: str
    box: Box
    takers: tuple[int, ...]
    sources: tuple[int, ...]

    def pairs(self, bundle: int) -> Iterator[tuple[int, int]]:
        """Yield who sends to whom, for the `bundle`-th of the bundles."""
        turn = bundle * len(self.takers)
        for place, taker in enumerate(self.takers):
            yield self.sources[(turn + place) % len(self.sources)], taker


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


@attrs.frozen
class Pattern:
    """How bundles of one form go from one placement to another.

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
