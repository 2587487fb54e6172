"""What one rank compares after a planned reshard, as data that its worker carries out."""

from collections.abc import Iterator, Mapping

import attrs

from flowrl.compiler.layouts import Bundle, Shard
from flowrl.compiler.reshard import ReshardPlan
from flowrl.compiler.reshard.holders import Index
from flowrl.compiler.shapes import ModelShape, Parameter
from flowrl.ir.box import Box, common
from flowrl.runtime.reshard import CheckedPart, Checks
from flowrl.train.moves import Stored

Ranked = Mapping[int, tuple[Shard, ...]]
"""The shards of a bundle, by rank."""


@attrs.frozen
class Compared:
    """The parts of one bundle that a rank compares; `count` are those of all ranks."""

    count: int
    held: tuple[CheckedPart, ...]
    needed: tuple[CheckedPart, ...]


def checks_of(plan: ReshardPlan, shape: ModelShape, rank: int) -> Checks:
    """Return what one rank compares after a reshard; every rank of the plan makes its own.

    Every part that a rank needs is compared with what the ranks that held it, the lowest of those
    that held the same, say of it.

    Args:
        plan: what has gone where.
        shape: of the model.
        rank: who compares.
    """
    found = {p: _compared(p.bundles[0], plan, shape, rank) for p in plan.patterns}
    before, held, needed = 0, [], []
    for pattern, _, names in plan.turns():
        held += [_named(part, names, before) for part in found[pattern].held]
        needed += [_named(part, names, before) for part in found[pattern].needed]
        before += found[pattern].count
    edge = f"{plan.src.layout} -> {plan.dst.layout}"
    return Checks(edge, before, tuple(held), tuple(needed))


def _named(part: CheckedPart, names: Mapping[str, str], before: int) -> CheckedPart:
    """Return the same part of another bundle of the same form."""
    own = attrs.evolve(part.slice, tensor=names[part.slice.tensor])
    return attrs.evolve(
        part, number=before + part.number, parameter=names[part.parameter], slice=own
    )


def _compared(bundle: Bundle, plan: ReshardPlan, shape: ModelShape, rank: int) -> Compared:
    have, need = (p.shards(bundle, shape) for p in (plan.src, plan.dst))
    held, needed = (Stored.of_shards(stored.get(rank, ())) for stored in (have, need))
    count = 0
    vouched: list[CheckedPart] = []
    compared: list[CheckedPart] = []
    for parameter in bundle.parameters:
        numbers = {box: count + i for i, box in enumerate(sorted(_lowest(need, parameter)))}
        count += len(numbers)
        vouched += _vouched(parameter, _lowest(have, parameter), numbers, held, rank)
        compared += [
            _part(parameter, box, numbers[box], needed) for box in needed.boxes(parameter.name)
        ]
    return Compared(count, tuple(vouched), tuple(compared))


def _vouched(
    parameter: Parameter,
    lowest: Mapping[Box, int],
    numbers: Mapping[Box, int],
    held: Stored,
    rank: int,
) -> Iterator[CheckedPart]:
    """Yield what a rank has of each part that anyone needs, where it is the lowest that has it."""
    index = Index(numbers)
    for box in held.boxes(parameter.name):
        for other in index.near(box) if lowest[box] == rank else ():
            shared = common(box, other)
            if shared:
                yield _part(parameter, shared, numbers[other], held)


def _part(parameter: Parameter, box: Box, number: int, stored: Stored) -> CheckedPart:
    where = stored.slice(parameter.name, box)
    return CheckedPart(number, parameter.name, parameter.shape, box, where)


def _lowest(stored: Ranked, parameter: Parameter) -> dict[Box, int]:
    """Return the lowest rank that has each box of a parameter."""
    return {
        piece.box: rank
        for rank, shards in sorted(stored.items(), reverse=True)
        for shard in shards
        for piece in shard.pieces
        if piece.parameter == parameter.name
    }
