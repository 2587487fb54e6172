"""Seconds of an update: forward and backward over packed microbatches, and the optimizer."""

import attrs

from flowrl.compiler.cost.forward import (
    Batch,
    exposed,
    forward_pass,
    gather,
    launches_of,
    layer_bytes,
    waits,
)
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.cost.weights import shard_count


def update_seconds(sequences: float, passes: int, rank: Rank) -> Spent:
    """Return the seconds of an update: forward, backward, gradients summed, optimizer.

    The backward pass does twice the forward's operations (Kaplan et al. 2020, arXiv:2001.08361,
    sec. 2.1), and with checkpointing the layers' forward pass again (Chen et al. 2016,
    arXiv:1604.06174). A loss that needs all rows first (`passes` of 2) takes a forward pass more.
    """
    batch = Batch.of(sequences, rank)
    if not batch.tokens:
        return Spent()
    once, again = forward_pass(batch, rank), Spent()
    if rank.settings.checkpointing:
        again = forward_pass(attrs.evolve(batch, targets=0.0), rank)
    work = once * (passes + 2) + again
    exchange = once.network * (passes + 1) + again.network
    hidden = batch.microbatches * (gather(rank) * (passes + 1) + _scatter(rank))
    busy = work.compute + work.memory
    sums = _sum_gradients(rank)
    last = busy / 2 / batch.microbatches
    shown = max(exposed(hidden + sums, busy, batch, rank), sums - last)
    memory = work.memory + _optimizer(rank)
    spent = Spent(work.compute, memory, exchange + shown)
    launches = launches_of(rank, passes, backward=True)
    return spent + waits(spent, attrs.evolve(work, network=exchange), batch, rank, launches)


def _scatter(rank: Rank) -> float:
    fsdp = rank.along("fsdp")
    return rank.layers * fsdp.reduce_scatter(layer_bytes(rank, rank.settings.gradient_bytes))


def _sum_gradients(rank: Rank) -> float:
    """Return the seconds to sum gradients over replicas, from the last backward pass on."""
    each, settings = shard_count(rank.shape, rank.layout), rank.settings
    shared = rank.dense_count / rank.layout.fsdp
    return rank.along("dp").all_reduce(each * settings.gradient_bytes) + rank.along(
        "ep"
    ).all_reduce(shared * settings.gradient_bytes)


def _optimizer(rank: Rank) -> float:
    """Return the seconds of AdamW: states read and written, gradients read twice and zeroed."""
    s = rank.settings
    each = 2 * s.optimizer_bytes + 3 * s.gradient_bytes + s.weight_bytes
    return shard_count(rank.shape, rank.layout) * each / rank.hbm
