"""A reshard carried out: slices go from rank to rank, into the tensors that need them."""

from collections import deque
from collections.abc import Iterator, Mapping

import attrs
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import P2POp, ProcessGroup, Work

from flowrl.errors import EngineError
from flowrl.runtime.reshard.move import Buffer, Move, Round, Slice

IN_FLIGHT = 2
"""Rounds that are under way at once: while one is on the wire, the next one is packed."""

Tensors = Mapping[str, Tensor]


@attrs.frozen(eq=False)
class Wire:
    """How buffers go from rank to rank.

    Attributes:
        dtype: of a number on the wire: the narrower of what is held and what is needed.
        device: where buffers lie, on all ranks alike: gloo carries those of CPUs, nccl of GPUs.
        group: who talks; all processes that have joined, if not given. With nccl all of them must
            have met in it before: a collective of the whole group makes its connections.
    """

    dtype: torch.dtype
    device: str = "cpu"
    group: ProcessGroup | None = None


@attrs.define
class Sent:
    """What one rank has moved, in bytes.

    Attributes:
        sent: of the buffers that it handed to the process group.
        received: of the buffers that the process group filled.
        copied: written in its own memory, from one of its tensors to another.
    """

    sent: int = 0
    received: int = 0
    copied: int = 0


@attrs.frozen(eq=False)
class Flight:
    """A round on its way.

    Attributes:
        works: done when its buffers have gone and come.
        buffers: the round.
        flats: [number], their contents: on the wire until the works are done.
    """

    works: list[Work]
    buffers: Round
    flats: list[Tensor]


def reshard(move: Move, held: Tensors, needed: Tensors, wire: Wire) -> Sent:
    """Bring weights into another layout: do this rank's part, while the others do theirs.

    No rank waits for one that waits for it: all go through the rounds in one order, a buffer is
    in the same round at both of its ends, and nobody lands a round before all of it has begun.

    Args:
        move: what this rank does.
        held: its tensors in the old layout, by name; they are read.
        needed: its tensors in the new layout, by name; what the model has of them is written in
            place, and padding is left as it is.
        wire: how buffers go.

    Raises:
        EngineError: a tensor is missing, or of another shape than the layout says.
        RuntimeError: another rank ended, or didn't come in time; see `Ranks.together`.
    """
    check(move, held, needed, wire)
    done = Sent()
    with torch.no_grad():
        copy(move, held, needed, done)
        for step in move.steps:
            flights: deque[Flight] = deque()
            for buffers in step:
                flights.append(begin(buffers, move.rank, (held, needed), wire))
                if len(flights) == IN_FLIGHT:
                    land(flights.popleft(), move.rank, needed, done)
            for flight in flights:
                land(flight, move.rank, needed, done)
    return done


def check(move: Move, held: Tensors, needed: Tensors, wire: Wire) -> None:
    """Raise EngineError unless engines have the tensors and the type that the plan says."""
    if wire.dtype.itemsize != move.sent_bytes:
        raise EngineError(
            f"the plan sends numbers of {move.sent_bytes} bytes; the engines' narrower type is "
            f"{wire.dtype}, of {wire.dtype.itemsize}"
        )
    for which, shapes, tensors in (("old", move.held, held), ("new", move.needed, needed)):
        for name, shape in shapes.items():
            got = tuple(tensors[name].shape) if name in tensors else "none"
            if got != shape:
                raise EngineError(
                    f"in the {which} layout, rank {move.rank} has `{name}` in the shape {shape}; "
                    f"its engine has {got}",
                    hint="the model's config.json and its weights must be of one model",
                )


def copy(move: Move, held: Tensors, needed: Tensors, done: Sent) -> None:
    """Copy what this rank has already, but for tensors that are views of what it has."""
    pairs = [(part(held, c.held), part(needed, c.needed)) for c in move.copies]
    for alias in move.aliases:
        rows, tensor = part(held, alias.held), needed[alias.needed]
        if rows.numel() and rows.data_ptr() != tensor.data_ptr():
            pairs.append((rows, tensor))
    for source, destination in pairs:
        destination.copy_(source)
        done.copied += destination.nbytes


def begin(buffers: Round, rank: int, tensors: tuple[Tensors, Tensors], wire: Wire) -> Flight:
    """Hand a round's buffers to the process group."""
    flats = [
        torch.empty(sum(s.elements for s in b.slices), dtype=wire.dtype, device=wire.device)
        for b in buffers
    ]
    ops = []
    for buffer, flat in zip(buffers, flats, strict=True):
        if buffer.source == rank:
            for packed, own in parts(buffer, flat, tensors[buffer.hop > 0]):
                packed.copy_(own)
            ops.append(P2POp(dist.isend, flat, buffer.destination, wire.group))
        else:
            ops.append(P2POp(dist.irecv, flat, buffer.source, wire.group))
    return Flight(dist.batch_isend_irecv(ops), buffers, flats)


def land(flight: Flight, rank: int, needed: Tensors, done: Sent) -> None:
    """Wait for a round, and unpack what it has brought."""
    for work in flight.works:
        work.wait()
    for buffer, flat in zip(flight.buffers, flight.flats, strict=True):
        if buffer.source == rank:
            done.sent += flat.nbytes
            continue
        done.received += flat.nbytes
        for packed, own in parts(buffer, flat, needed):
            own.copy_(packed)


def parts(buffer: Buffer, flat: Tensor, tensors: Tensors) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each slice as it lies in a buffer and in this rank's own tensor."""
    sizes = [s.elements for s in buffer.slices]
    for piece, packed in zip(buffer.slices, flat.split(sizes), strict=True):
        yield packed.view(piece.shape), part(tensors, piece)


def part(tensors: Tensors, piece: Slice) -> Tensor:
    """Return a slice as a view of this rank's own tensor."""
    return tensors[piece.tensor][tuple(slice(*span) for span in piece.box)]
