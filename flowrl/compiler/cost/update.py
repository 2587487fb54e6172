"""Seconds of an update: forward and backward over packed microbatches, and the optimizer."""

import attrs

from flowrl.compiler.cost.forward import (
    Batch,
    backward_pass,
    end_gradients,
    exposed,
    forward_pass,
    gather,
    launches_of,
    layer_gradients,
    waits,
)
from flowrl.compiler.cost.kept import Kept, fetched_seconds, streamed_seconds
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.spent import Spent


def update_seconds(sequences: float, passes: int, rank: Rank) -> Spent:
    """Return the seconds of an update: forward, backward, gradients summed, optimizer.

    With checkpointing the backward pass does the layers' forward pass again (Chen et al. 2016,
    arXiv:1604.06174). A loss that needs all rows first (`passes` of 2) takes a forward pass more.
    """
    batch = Batch.of(sequences, rank)
    if not batch.tokens:
        return Spent()
    once, again = forward_pass(batch, rank), Spent()
    if rank.settings.checkpointing:
        again = forward_pass(attrs.evolve(batch, targets=0.0), rank)
    work = once * passes + backward_pass(batch, rank) + again
    gathered = gather(rank, trains=True) * (passes + 1) + _scatter(rank)
    hidden = batch.microbatches * (gathered + streamed_seconds(passes, rank))
    busy = work.compute + work.memory
    sums = _sum_gradients(rank)
    last = busy / 2 / batch.microbatches
    shown = max(exposed(hidden + sums, busy, batch, rank), sums - last)
    memory = work.memory + _optimizer(rank)
    network = work.network + shown + fetched_seconds(batch.tokens, rank)
    spent = Spent(work.compute, memory, network)
    launches = launches_of(rank, passes, backward=True)
    return spent + waits(spent, work, batch, rank, launches)


def _scatter(rank: Rank) -> float:
    fsdp = rank.along("fsdp")
    ends = fsdp.reduce_scatter(end_gradients(rank))
    return rank.layers * fsdp.reduce_scatter(layer_gradients(rank)) + ends


def _sum_gradients(rank: Rank) -> float:
    """Return the seconds to sum gradients over replicas, from the last backward pass on."""
    shared = rank.dense_count / rank.layout.fsdp * rank.settings.gradient_bytes
    return rank.along("dp").all_reduce(Kept.of(rank).gradients) + rank.along("ep").all_reduce(
        shared
    )


def _optimizer(rank: Rank) -> float:
    """Return the seconds of AdamW: all read and written, gradients read twice and zeroed.

    The host's memory is taken to be as fast, for each GPU, as the way to it.
    """
    kept = Kept.of(rank)
    stepped = kept.gradients if rank.adapter else kept.lasting
    narrowed = kept.weights if kept.masters else 0
    moved = 2 * (stepped + kept.moments) + 3 * kept.gradients + narrowed
    return moved / (rank.host if rank.hosted else rank.hbm)
