"""Seconds to put a seat's bytes to sleep, and to wake them."""

from flowrl.compiler.cost.links import host_bytes_per_s, slowest
from flowrl.compiler.cost.memory import Memory, Residency
from flowrl.compiler.target import Target


def wake_seconds(memory: Memory, residency: Residency, ranks: range, target: Target) -> float:
    """Return the seconds to bring back what a seat has in host memory.

    Dropped weights come by a reshard, which is counted there.

    Args:
        memory: of the seat.
        residency: how it sleeps.
        ranks: that it is on.
        target: gives the machines, and the share of a link's speed that is reached.
    """
    gpu = slowest(target.machines, ranks)
    start = target.profile.of(gpu.name, "offload").start
    moved = memory.leaves(residency)
    return start + moved / host_bytes_per_s(gpu, target.profile) if moved else 0.0


def sleep_seconds(
    memory: Memory, residency: Residency, ranks: range, target: Target, *, changed: bool
) -> float:
    """Return the seconds to let a seat's bytes go.

    Args:
        memory: of the seat.
        residency: how it sleeps.
        ranks: that it is on.
        target: as of `wake_seconds`.
        changed: whether they are updated while awake; else the copy on the host is still right.
    """
    return wake_seconds(memory, residency, ranks, target) if changed else 0.0
