"""What one rank does in a planned reshard, as data that its worker carries out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import ceil

import attrs

from flowrl.compiler.layouts import Shard, Sharding, located
from flowrl.compiler.reshard import Alias as PlannedAlias
from flowrl.compiler.reshard import Buffer as PlannedBuffer
from flowrl.compiler.reshard import ReshardPlan, Send, buffers
from flowrl.compiler.reshard.traffic import BUFFER_BYTES
from flowrl.compiler.shapes import ModelShape
from flowrl.ir.box import Box, elements
from flowrl.runtime.reshard import Alias, Buffer, Copy, Move, Slice


@attrs.frozen(eq=False)
class Stored:
    """What one rank stores in a sharding: the shards that have a parameter, by its name."""

    shards: dict[str, Shard]

    @classmethod
    def of(cls, sharding: Sharding, shape: ModelShape, rank: int) -> "Stored":
        """Return what a rank stores; nothing if the sharding isn't on it."""
        return cls.of_shards(sharding.tensors(rank, shape) if rank in sharding.ranks else ())

    @classmethod
    def of_shards(cls, shards: Iterable[Shard]) -> "Stored":
        """Return shards by the parameters that they have."""
        return cls({piece.parameter: shard for shard in shards for piece in shard.pieces})

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor that isn't empty."""
        return {shard.tensor: shard.shape for shard in self.shards.values()}

    def boxes(self, parameter: str) -> tuple[Box, ...]:
        """Return which parts of a parameter there are."""
        pieces = self.shards[parameter].pieces if parameter in self.shards else ()
        return tuple(piece.box for piece in pieces if piece.parameter == parameter)

    def slice(self, parameter: str, box: Box) -> Slice:
        """Return where a part of a parameter lies."""
        return Slice(*located([self.shards[parameter]], parameter, box))


def move_of(plan: ReshardPlan, shape: ModelShape, rank: int, limit: int = BUFFER_BYTES) -> Move:
    """Return what one rank does in a reshard; every rank of the plan makes its own.

    Args:
        plan: what goes where.
        shape: of the model.
        rank: whose move it is.
        limit: bytes of a buffer.
    """
    held, needed = (Stored.of(p, shape, rank) for p in (plan.src, plan.dst))
    return Move(
        rank=rank,
        sent_bytes=plan.sent_bytes,
        held=held.shapes,
        needed=needed.shapes,
        copies=tuple(
            Copy(held.slice(c.parameter, c.box), needed.slice(c.parameter, c.box))
            for c in plan.copies(rank)
        ),
        aliases=tuple(_alias(view, needed) for view in plan.aliases(rank)),
        steps=tuple(
            tuple(tuple(_buffer(b, rank, held, needed) for b in together) for together in step)
            for step in _steps(plan, shape, rank, limit)
        ),
    )


def _alias(view: PlannedAlias, needed: Stored) -> Alias:
    rows, *others = needed.shapes[view.tensor]
    box = ((view.start, view.start + rows), *((0, size) for size in others))
    return Alias(view.tensor, Slice(view.held, box))


def _buffer(planned: PlannedBuffer, rank: int, held: Stored, needed: Stored) -> Buffer:
    own = held if planned.source == rank and not planned.hop else needed
    slices = tuple(own.slice(send.parameter, send.box) for send in planned.sends)
    return Buffer(planned.source, planned.destination, planned.hop, slices)


def _steps(
    plan: ReshardPlan, shape: ModelShape, rank: int, limit: int
) -> Iterator[list[list[PlannedBuffer]]]:
    """Yield a rank's buffers, step by step in rounds.

    Of what is passed on, a step moves one part of the model by its first hop, the part before it by
    its second: the row of those that pass it on works all at once.
    """
    part = _parts(plan, shape, limit)
    steps: dict[int, list[Send]] = defaultdict(list)
    for send in plan.sends(rank):
        steps[part[send.parameter] + send.hop].append(send)
    for _, sends in sorted(steps.items()):
        yield _rounds(plan, buffers(sends, limit))


def _rounds(plan: ReshardPlan, planned: tuple[PlannedBuffer, ...]) -> list[list[PlannedBuffer]]:
    """Return buffers in rounds, in each of which every rank sends one and gets one at most.

    In turn each rank sends to the next one, to the next but one, and so on around the ring.
    """
    place = {rank: i for i, rank in enumerate(sorted({*plan.src.ranks, *plan.dst.ranks}))}
    before: Counter[tuple[int, int, int]] = Counter()
    rounds: dict[tuple[int, int, int], list[PlannedBuffer]] = defaultdict(list)
    for buffer in planned:
        pair = buffer.hop, buffer.source, buffer.destination
        around = (place[buffer.destination] - place[buffer.source]) % len(place)
        rounds[buffer.hop, before[pair], around].append(buffer)
        before[pair] += 1
    return [together for _, together in sorted(rounds.items(), key=lambda item: item[0])]


def _parts(plan: ReshardPlan, shape: ModelShape, limit: int) -> dict[str, int]:
    """Return in which part of the model a parameter goes.

    A rank passes on about one buffer of each part, as `Traffic.seconds` has it.
    """
    relayed = sum(
        flow.passed_on * elements(flow.box) * plan.sent_bytes * len(pattern.bundles)
        for pattern in plan.patterns
        for flow in pattern.flows
    )
    count = max(1, ceil(relayed / (limit * len(plan.dst.ranks))))
    found, before = {}, 0
    for parameter in shape.parameters():
        found[parameter.name] = before * count // shape.count
        before += parameter.count
    return found
