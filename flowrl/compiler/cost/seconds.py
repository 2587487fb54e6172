"""The seconds of one execution of a task."""

import attrs

from flowrl.compiler.cost.forward import score_seconds
from flowrl.compiler.cost.generate import generate_seconds
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.cost.update import update_seconds
from flowrl.compiler.cost.weights import shard_count
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.target import Target
from flowrl.compiler.tasks import Task
from flowrl.ir.layout import Layout


def seconds(
    task: Task,
    shape: ModelShape,
    layout: Layout,
    ranks: range,
    target: Target,
    cache_share: float = 1.0,
) -> Spent:
    """Return the seconds of one execution of a task, by what they are spent on.

    A roofline: bytes over bandwidth, operations over their rate, at the shares of the data sheet
    that the profile has for this kind of task. The step's times of a task are `task.times` times
    as long. Bringing weights, waking and sleeping are not in it.

    Args:
        task: what is done, on how many sequences.
        shape: of the task's model.
        layout: of its weights.
        ranks: that they lie over, `layout.size` of them.
        target: machines, lengths, settings and profile.
        cache_share: how much an engine takes of the KV cache that it would have with the GPUs for
            itself; with less, fewer sequences run at once.
    """
    rank = Rank.of(task.kind, task.seat.role, shape, layout, ranks, target, cache_share)
    if task.base:
        rank = attrs.evolve(rank, adapter=None)
    if task.kind == "generate":
        return generate_seconds(task.sequences, rank)
    if task.kind == "update":
        return update_seconds(task.sequences, task.passes, rank)
    if task.phase == "copy":
        return _copy(rank)
    return score_seconds(task.sequences, rank)


def _copy(rank: Rank) -> Spent:
    """Return the seconds to read and write each weight once; an adapter's base is not copied."""
    s = rank.settings
    each = s.gradient_bytes if rank.adapter else s.weight_bytes
    moved = 2 * shard_count(rank.trained, rank.layout) * each
    return Spent(memory=moved / rank.hbm, overhead=rank.speeds.start)
