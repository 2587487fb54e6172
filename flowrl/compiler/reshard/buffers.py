"""Buffers of bounded size, in an order that sender and receiver derive alike."""

import math
from collections.abc import Iterable, Iterator

import attrs

from flowrl.compiler.reshard.plan import Send
from flowrl.compiler.reshard.traffic import BUFFER_BYTES
from flowrl.ir.box import Box, at_dim, elements


@attrs.frozen
class Buffer:
    """Slices that go from one rank to another together, packed one behind another.

    Attributes:
        source: who sends it.
        destination: who receives it.
        hop: of its slices; the source got them in buffers of the hop before.
        sends: the slices, in their order in the buffer.
    """

    source: int
    destination: int
    hop: int
    sends: tuple[Send, ...]

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(send.bytes for send in self.sends)


def buffers(sends: Iterable[Send], limit: int = BUFFER_BYTES) -> tuple[Buffer, ...]:
    """Return the buffers of every pair of ranks, hop by hop.

    Between two ranks they are in the order of the sends. The sends of one rank give the same
    buffers between it and others as those of all ranks do.

    Args:
        sends: of a plan, or those in which one rank takes part.
        limit: bytes of a buffer; a larger slice is cut.
    """
    pairs: dict[tuple[int, int, int], list[Send]] = {}
    for send in sends:
        pair = send.hop, send.source, send.destination
        pairs.setdefault(pair, []).extend(_cut(send, limit))
    return tuple(
        Buffer(source, destination, hop, packed)
        for hop, source, destination in sorted(pairs)
        for packed in _packed(pairs[hop, source, destination], limit)
    )


def _packed(sends: Iterable[Send], limit: int) -> Iterator[tuple[Send, ...]]:
    held: list[Send] = []
    size = 0
    for send in sends:
        if held and size + send.bytes > limit:
            yield tuple(held)
            held, size = [], 0
        held.append(send)
        size += send.bytes
    if held:
        yield tuple(held)


def _cut(send: Send, limit: int) -> Iterator[Send]:
    """Yield slices within the limit, cut along the first dims; one element is the least."""
    if send.bytes <= limit:
        yield send
        return
    width = send.bytes // elements(send.box)
    for box in _boxes(send.box, max(1, limit // width)):
        yield attrs.evolve(send, box=box, bytes=elements(box) * width)


def _boxes(box: Box, most: int) -> Iterator[Box]:
    dim = next((d for d, (start, stop) in enumerate(box) if stop - start > 1), None)
    if elements(box) <= most or dim is None:
        yield box
        return
    start, stop = box[dim]
    rows = max(1, most // math.prod(b - a for a, b in box[dim + 1 :]))
    for low in range(start, stop, rows):
        yield from _boxes(at_dim(box, dim, (low, min(low + rows, stop))), most)
