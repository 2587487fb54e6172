"""Seconds of scoring and of updates: passes over packed microbatches."""

from math import ceil

import attrs

from flowrl.compiler.cost.activations import LOGIT_TRAVEL, Widths
from flowrl.compiler.cost.phase import Phase
from flowrl.compiler.cost.rank import BF16, Rank
from flowrl.compiler.cost.weights import layer_count, shard_count

BACKWARD, HOOKS = 3.5, 2.3
"""What Python launches for a layer's backward pass, and FSDP's hooks, in forward passes."""


@attrs.frozen
class Batch:
    """What the fullest rank gets of some sequences; expected numbers.

    Attributes:
        tokens: of prompts and responses.
        pairs: of tokens of which one attends to the other.
        targets: tokens whose log-probability or value is asked for.
        microbatches: that sequences are packed into, at least one for each pipeline stage.
    """

    tokens: float
    pairs: float
    targets: float
    microbatches: float

    @classmethod
    def of(cls, sequences: float, rank: Rank) -> "Batch":
        """Return the fullest rank's part of sequences of the workload's lengths."""
        each = ceil(sequences / rank.batches - 1e-9) if sequences else 0
        prompt, response = rank.workload.prompt_tokens, rank.workload.response_tokens
        square = prompt.mean_square + 2 * prompt.mean * response.mean + response.mean_square
        length = prompt.mean + response.mean
        room = rank.settings.microbatch_tokens - length / 2  # sequences stay whole: half of one
        packed = max(each * length / max(room, length), min(rank.layout.pp, each))
        return cls(each * length, each * square / 2, each * response.mean, packed)


def score_phase(sequences: float, rank: Rank) -> Phase:
    """Return the seconds of a forward pass without gradient: log-probabilities, values, rewards."""
    batch = Batch.of(sequences, rank)
    if not batch.tokens:
        return Phase()
    once = _forward(batch, rank)
    gathers = batch.microbatches * _gather(rank)
    exposed = once.network + _exposed(gathers, once.seconds, batch, rank)
    phase = Phase(once.compute, once.memory, exposed)
    return phase + _waits(phase, once, batch, rank, _launches(rank))


def update_phase(sequences: float, passes: int, rank: Rank) -> Phase:
    """Return the seconds of an update: forward, backward, gradients summed, optimizer.

    The backward pass does twice the forward's operations (Kaplan et al. 2020, arXiv:2001.08361,
    sec. 2.1), and with checkpointing the layers' forward pass again (Chen et al. 2016,
    arXiv:1604.06174). A loss that needs all rows first (`passes` of 2) takes a forward pass more.
    """
    batch = Batch.of(sequences, rank)
    if not batch.tokens:
        return Phase()
    once, again = _forward(batch, rank), Phase()
    if rank.settings.checkpointing:
        again = _forward(attrs.evolve(batch, targets=0.0), rank)
    work = once * (passes + 2) + again
    exchange = once.network * (passes + 1) + again.network
    hidden = batch.microbatches * (_gather(rank) * (passes + 1) + _scatter(rank))
    busy = work.compute + work.memory
    sums = _sum_gradients(rank)
    last = busy / 2 / batch.microbatches
    exposed = max(_exposed(hidden + sums, busy, batch, rank), sums - last)
    memory = work.memory + _optimizer(rank)
    phase = Phase(work.compute, memory, exchange + exposed)
    launches = _launches(rank, passes, backward=True)
    return phase + _waits(phase, attrs.evolve(work, network=exchange), batch, rank, launches)


def _forward(batch: Batch, rank: Rank) -> Phase:
    """Return compute, activations and exchanges of one forward pass over all microbatches."""
    shape, layout = rank.shape, rank.layout
    parts = layout.tp * layout.pp
    flops = batch.tokens * shape.body_flops + batch.pairs * shape.attention_flops
    flops += batch.targets * shape.head_flops
    each = batch.tokens / batch.microbatches
    weights = batch.microbatches * rank.weights_read(each)
    widths = Widths.of(shape, layout)
    moved = batch.tokens * rank.layers * widths.travelled(compiled=rank.settings.compiled)
    if shape.head in ("lm", "lm+value"):
        moved += batch.targets * LOGIT_TRAVEL * shape.vocab / parts
    sends = rank.along("pp").send(each * shape.hidden * BF16)
    exchange = rank.layers * rank.layer_exchange(each) + sends
    return Phase(
        compute=max(flops / parts / rank.flops, weights / rank.hbm),
        memory=moved / rank.hbm,
        network=batch.microbatches * exchange,
    )


def _waits(phase: Phase, work: Phase, batch: Batch, rank: Rank, launches: float) -> Phase:
    """Return the seconds of the start, of stages that wait, and of GPUs that wait for Python.

    Pipeline stages wait (pp - 1) microbatches of the `work` (Narayanan et al. 2021,
    arXiv:2104.04473, sec. 2.2.1).
    """
    host = launches * rank.speeds.launch * rank.layers * batch.microbatches
    stages = max(work.seconds, host) * (rank.layout.pp - 1) / batch.microbatches
    return Phase(overhead=rank.speeds.start + stages + max(0.0, host - phase.seconds))


def _launches(rank: Rank, forwards: int = 1, *, backward: bool = False) -> float:
    """Return what Python launches for a layer and microbatch, in forward passes.

    Measured on one H200's host (docs/compiler.md): a backward pass takes 3.5 of a forward; what is
    compiled, half; FSDP's hooks add 2.3 to each pass.
    """
    passes = forwards + (backward and rank.settings.checkpointing)
    kernels = (passes + BACKWARD * backward) * (0.5 if rank.settings.compiled else 1.0)
    return kernels + HOOKS * (passes + backward) * (rank.layout.fsdp > 1)


def _layer_bytes(rank: Rank, each: int) -> float:
    return each * layer_count(rank.shape, rank.layout)


def _gather(rank: Rank) -> float:
    """Return the seconds to gather the weights of all layers for one pass over a microbatch.

    ZeRO's third stage (Rajbhandari et al. 2019, arXiv:1910.02054, sec. 7.2.2) gathers them for the
    forward and for the backward pass, and sums gradients once.
    """
    fsdp = rank.along("fsdp")
    return rank.layers * fsdp.all_gather(_layer_bytes(rank, rank.settings.weight_bytes))


def _scatter(rank: Rank) -> float:
    fsdp = rank.along("fsdp")
    return rank.layers * fsdp.reduce_scatter(_layer_bytes(rank, rank.settings.gradient_bytes))


def _exposed(seconds: float, busy: float, batch: Batch, rank: Rank) -> float:
    """Return the part of communication that computing doesn't hide: at least one layer's."""
    return max(seconds - busy, seconds / (rank.layers * batch.microbatches))


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
