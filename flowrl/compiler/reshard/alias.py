"""Which tensors need no bytes at all, since they can be views of tensors that are there."""

from flowrl.compiler.layouts.shard import Piece, Shard
from flowrl.ir.box import Box, common, elements, moved, whole


def row_in(held: Shard, needed: Shard) -> int | None:
    """Return the row of a stored tensor where a view of it is the needed one; None if nowhere is.

    All parameters of the needed tensor lie there as they must, its padding is padding there, and
    the view is contiguous, as engines' kernels expect.
    """
    shifts = {_shift(piece, held) for piece in needed.pieces}
    shift = shifts.pop() if len(shifts) == 1 else None
    if shift is None or any(shift[1:]) or needed.shape[1:] != held.shape[1:]:
        return None
    if shift[0] < 0 or shift[0] + needed.shape[0] > held.shape[0]:
        return None
    window = moved(whole(needed.shape), shift)
    same = _filled(window, held) == sum(elements(piece.box) for piece in needed.pieces)
    return shift[0] if same else None


def _shift(piece: Piece, held: Shard) -> tuple[int, ...] | None:
    """Return from where in the needed tensor to where in the held one a piece goes."""
    for other in held.pieces:
        if other.parameter == piece.parameter and common(other.box, piece.box) == piece.box:
            there = other.place_of(piece.box)
            return tuple(start - at for (start, _), at in zip(there, piece.offset, strict=True))
    return None


def _filled(window: Box, held: Shard) -> int:
    """Return how many elements of a window of a tensor are no padding."""
    shared = (common(window, piece.stored) for piece in held.pieces)
    return sum(elements(box) for box in shared if box)
