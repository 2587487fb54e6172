"""Shards: the tensors that one rank stores, and which parts of parameters lie where in them."""

from collections.abc import Iterable, Sequence

import attrs

from flowrl.compiler.shapes import Parameter
from flowrl.ir.box import Box, at_dim, common, moved, whole
from flowrl.ir.sections import Span


@attrs.frozen
class Piece:
    """A part of a parameter, in a stored tensor.

    Attributes:
        parameter: its name.
        box: which part, in the parameter's own coordinates.
        offset: where the part begins in the stored tensor, along every dim.
    """

    parameter: str
    box: Box
    offset: tuple[int, ...]

    @property
    def stored(self) -> Box:
        """Where it lies, in the stored tensor's coordinates."""
        ends = zip(self.offset, self.box, strict=True)
        return tuple((at, at + stop - start) for at, (start, stop) in ends)

    def place_of(self, box: Box) -> Box:
        """Return where a part of it lies, in the stored tensor's coordinates."""
        ends = zip(self.offset, self.box, strict=True)
        return moved(box, tuple(at - start for at, (start, _) in ends))


@attrs.frozen
class Shard:
    """One stored tensor of one rank; what no piece covers is padding.

    Attributes:
        tensor: its name: of the parameter, or of the parameters that it joins.
        shape: as stored.
        pieces: what it holds.
    """

    tensor: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    def has(self, parameter: str) -> bool:
        """Whether anything of a parameter is in it."""
        return any(piece.parameter == parameter for piece in self.pieces)


def located(shards: Iterable[Shard], parameter: str, box: Box) -> tuple[str, Box]:
    """Return which stored tensor has a slice of a parameter, and where in it.

    Raises:
        LookupError: no tensor has all of the slice in one piece.
    """
    for shard in shards:
        for piece in shard.pieces:
            if piece.parameter == parameter and common(piece.box, box) == box:
                return shard.tensor, piece.place_of(box)
    raise LookupError(f"no tensor has {box} of {parameter}")


def stored_whole(parameter: Parameter) -> Shard:
    """Return a parameter that isn't divided."""
    offset = (0,) * len(parameter.shape)
    piece = Piece(parameter.name, whole(parameter.shape), offset)
    return Shard(parameter.name, parameter.shape, (piece,))


def cut(shard: Shard, dim: int, spans: Sequence[Span]) -> Shard:
    """Keep spans of the stored tensor along a dim, one behind another.

    A span may go past the end: the rest of it is padding.
    """
    pieces, at = [], 0
    for start, stop in spans:
        for piece in shard.pieces:
            first, last = piece.stored[dim]
            low, high = max(start, first), min(stop, last)
            if low < high:
                origin = piece.box[dim][0] - first
                box = at_dim(piece.box, dim, (low + origin, high + origin))
                offset = (*piece.offset[:dim], at + low - start, *piece.offset[dim + 1 :])
                pieces.append(Piece(piece.parameter, box, offset))
        at += stop - start
    shape = (*shard.shape[:dim], at, *shard.shape[dim + 1 :])
    return Shard(shard.tensor, shape, tuple(pieces))


def joined(tensor: str, shards: Sequence[Shard], dim: int) -> Shard:
    """Return shards stored as one tensor, one behind another along a dim."""
    pieces, at = [], 0
    for shard in shards:
        for piece in shard.pieces:
            offset = (*piece.offset[:dim], at + piece.offset[dim], *piece.offset[dim + 1 :])
            pieces.append(attrs.evolve(piece, offset=offset))
        at += shard.shape[dim]
    shape = (*shards[0].shape[:dim], at, *shards[0].shape[dim + 1 :])
    return Shard(tensor, shape, tuple(pieces))
