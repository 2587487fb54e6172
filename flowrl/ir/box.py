"""Boxes: slices of a tensor along every dim."""

import math

from flowrl.ir.sections import Span

Box = tuple[Span, ...]
"""A span for each dim."""


def whole(shape: tuple[int, ...]) -> Box:
    """Return the box of a whole tensor."""
    return tuple((0, size) for size in shape)


def elements(box: Box) -> int:
    """Return how many elements a box holds."""
    return math.prod(stop - start for start, stop in box)


def common(a: Box, b: Box) -> Box | None:
    """Return what two boxes share, if they share anything."""
    found = []
    for (a_start, a_stop), (b_start, b_stop) in zip(a, b, strict=True):
        start, stop = max(a_start, b_start), min(a_stop, b_stop)
        if start >= stop:
            return None
        found.append((start, stop))
    return tuple(found)


def moved(box: Box, by: tuple[int, ...]) -> Box:
    """Return a box shifted along every dim."""
    return tuple((start + n, stop + n) for (start, stop), n in zip(box, by, strict=True))


def at_dim(box: Box, dim: int, span: Span) -> Box:
    """Return a box with another span along one dim."""
    return (*box[:dim], span, *box[dim + 1 :])
