"""Send lists over rows: who hands which rows to whom."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import attrs


@attrs.frozen
class Send:
    """Rows `start` to `stop` go from worker `src` of one pool to worker `dst` of another."""

    src: int
    dst: int
    start: int
    stop: int


def shares(sizes: Sequence[int], workers: int) -> list[range]:
    """Return the range of rows of each worker: contiguous, in order, nearly even in size.

    Args:
        sizes: of each row, such as its tokens; a row is never divided.
        workers: at least 1.
    """
    ends = [0, *accumulate(sizes)]
    bounds = [_nearest(ends, ends[-1] * k / workers) for k in range(workers)] + [len(sizes)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def send_list(have: Sequence[range], want: Sequence[range]) -> list[Send]:
    """Return what brings rows from one division to another.

    Args:
        have: the rows of each worker that sends; together all, each once.
        want: the rows of each worker that receives.

    Returns:
        Sends in the order of their rows at each receiver: each wanted row once, no other.
    """
    return [
        Send(src, dst, start, stop)
        for dst, wanted in enumerate(want)
        for src, held in enumerate(have)
        for start, stop in [(max(held.start, wanted.start), min(held.stop, wanted.stop))]
        if start < stop
    ]


def _nearest(ends: Sequence[int], target: float) -> int:
    return min(range(len(ends)), key=lambda i: abs(ends[i] - target))
