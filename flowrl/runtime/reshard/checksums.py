"""Checksums of weights: whether those that arrived are those that were sent, bit for bit."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import torch
import torch.distributed as dist
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.runtime.reshard.move import CheckedPart, Checks
from flowrl.runtime.reshard.wire import Tensors, Wire, part

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of the bytes of a number."""

AT_ONCE = 2**22
"""Numbers whose bits are widened at once."""

Called = Callable[[Sequence[int]], str]
"""What messages call some of the ranks."""


def compare(checks: Checks, held: Tensors, needed: Tensors, wire: Wire, called: Called) -> None:
    """Compare weights before and after a reshard; all ranks of the wire's group take part.

    Costs a read of what a rank holds and of what it needs, and 8 bytes over links for each part of
    each parameter; `benchmarks/reshard_wire.py` measures it.

    Args:
        checks: what this rank compares.
        held: its tensors in the old layout, by name.
        needed: its tensors in the new layout, by name.
        wire: how they were brought.
        called: what messages call ranks of the wire's group.

    Raises:
        EngineError: on every rank alike, with the parameters that differ and the ranks that have
            them so.
    """
    table = torch.zeros(checks.count, dtype=torch.int64, device=wire.device)
    for each, found in zip(checks.held, sums(checks.held, held, wire), strict=True):
        table[each.number] += found
    dist.all_reduce(table, group=wire.group)
    got = sums(checks.needed, needed, wire)
    expected = table[[each.number for each in checks.needed]]
    differ = torch.stack([*got, table.new_zeros(())])[:-1] != expected
    wrong = [checks.needed[i].parameter for i in differ.nonzero().flatten().tolist()]
    everyones: list[tuple[int, list[str]]] = [(0, [])] * dist.get_world_size(wire.group)
    dist.all_gather_object(everyones, (dist.get_rank(wire.group), wrong), group=wire.group)
    if any(names for _, names in everyones):
        raise EngineError(
            f"weights are not what was sent, after the reshard `{checks.edge}`: "
            f"{described(everyones, called)}",
            hint="start again from a checkpoint; memory or links that alter bits fail again soon",
        )


def described(wrong: Iterable[tuple[int, list[str]]], called: Called) -> str:
    """Return which parameter differs on which ranks, and how many others do."""
    ranks: dict[str, list[int]] = {}
    for rank, names in wrong:
        for name in dict.fromkeys(names):
            ranks.setdefault(name, []).append(rank)
    (name, where), *others = ranks.items()
    more = f", and {len(others)} more parameters" if others else ""
    return f"`{name}` on {called(where)}{more}"


def sums(parts: Sequence[CheckedPart], tensors: Tensors, wire: Wire) -> list[Tensor]:
    """Return the checksum of every part, as it is on the wire."""
    return [
        checksum(part(tensors, each.slice).detach(), each, wire.dtype).to(wire.device)
        for each in parts
    ]


def checksum(values: Tensor, of: CheckedPart, dtype: torch.dtype) -> Tensor:
    """Return the sum of a part's bits, each times a weight of its place in the parameter.

    The weight is a product of one random odd number for each dim. So sums of parts that share
    nothing add up to that of the whole, and two numbers that have changed places change it.

    Args:
        values: the part's numbers.
        of: where they stand in the parameter.
        dtype: as which they are compared.

    Returns:
        int64[], modulo 2^64.
    """
    spans = zip(of.shape, of.box, strict=True)
    first, *others = (
        weights(dim, size, values.device)[start:stop]
        for dim, (size, (start, stop)) in enumerate(spans)
    )
    rows = max(1, AT_ONCE * len(values) // values.numel())
    total = torch.zeros((), dtype=torch.int64, device=values.device)
    for some, weight in zip(values.split(rows), first.split(rows), strict=True):
        bits = some.to(dtype).view(BITS[dtype.itemsize]).to(torch.int64)
        for each in reversed(others):
            bits = (bits * each).sum(-1)
        total += (bits * weight).sum()
    return total


@lru_cache(maxsize=64)
def weights(dim: int, size: int, device: torch.device) -> Tensor:
    """Return int64[place along a dim]: odd numbers, the same in every process."""
    draw = torch.Generator().manual_seed(dim)
    bounds = torch.iinfo(torch.int64)
    return (torch.randint(bounds.min, bounds.max, (size,), generator=draw) | 1).to(device)
