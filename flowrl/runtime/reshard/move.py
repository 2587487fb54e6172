"""Moves: what one rank sends, receives and copies in a reshard, as data."""

from collections.abc import Mapping

import attrs

from flowrl.ir.box import Box, elements

Shapes = Mapping[str, tuple[int, ...]]
"""The shapes of a rank's own tensors, by name."""


@attrs.frozen
class Slice:
    """A part of one of a rank's own tensors.

    Attributes:
        tensor: its name.
        box: the part, in the coordinates of this rank's tensor.
    """

    tensor: str
    box: Box

    @property
    def shape(self) -> tuple[int, ...]:
        """Its size along every dim."""
        return tuple(stop - start for start, stop in self.box)

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return elements(self.box)


@attrs.frozen
class Buffer:
    """Slices that go from one rank to another together, packed one behind another.

    Attributes:
        source: the global rank that sends it.
        destination: the global rank that receives it.
        hop: 0 if the source has the slices as they were; later they are read where it received
            them.
        slices: where they are on the rank that the move is of, in their order in the buffer.
    """

    source: int
    destination: int
    hop: int
    slices: tuple[Slice, ...]


@attrs.frozen
class Copy:
    """A slice that a rank has already, in another tensor or another type."""

    held: Slice
    needed: Slice


@attrs.frozen
class Alias:
    """A needed tensor that is rows of a held one: nothing moves if the two share their storage."""

    needed: str
    held: Slice


Round = tuple[Buffer, ...]
"""What goes at once: a rank sends one buffer in it at most, and receives one at most."""


@attrs.frozen
class Move:
    """What one rank does in a reshard.

    Attributes:
        rank: the global rank that does it.
        sent_bytes: of a number on the wire.
        held: the shapes of the tensors that it reads.
        needed: the shapes of the tensors that it writes.
        copies: what it copies.
        aliases: what it needn't copy.
        steps: rounds of buffers, in the same order on all ranks; what is passed on in one step
            has come in an earlier one.
    """

    rank: int
    sent_bytes: int
    held: Shapes
    needed: Shapes
    copies: tuple[Copy, ...]
    aliases: tuple[Alias, ...]
    steps: tuple[tuple[Round, ...], ...]


@attrs.frozen
class CheckedPart:
    """A part of a parameter that is compared.

    Attributes:
        number: of the part of the new layout that it is or lies in, counted on all ranks alike.
        parameter: its name.
        shape: of the whole parameter.
        box: the part, in the coordinates of the whole parameter.
        slice: where this rank has it.
    """

    number: int
    parameter: str
    shape: tuple[int, ...]
    box: Box
    slice: Slice


@attrs.frozen
class Checks:
    """What one rank compares after a reshard.

    Attributes:
        edge: from which layout to which, for people.
        count: how many parts there are on all ranks.
        held: what it vouches for: each number of the old layout is vouched for by one rank.
        needed: what it has in the new layout.
    """

    edge: str
    count: int
    held: tuple[CheckedPart, ...]
    needed: tuple[CheckedPart, ...]
