"""Seconds of scoring: a forward pass over packed microbatches."""

from math import ceil

import attrs

from flowrl.compiler.cost.activations import LOGIT_TRAVEL, AdapterWidths, Widths
from flowrl.compiler.cost.rank import BF16, Rank
from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.cost.weights import end_count, layer_count

BACKWARD, HOOKS = 3.5, 2.3
"""What Python launches for a layer's backward pass, and FSDP's hooks, in forward passes."""

ADAPTER, ADAPTER_BACKWARD = 0.13, 0.27
"""What it launches beside them for one linear layer's adapter: as kernels were counted, of a llama
layer under autocast (tests/compiler/cost/test_adapters.py); none was timed."""


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


def score_seconds(sequences: float, rank: Rank) -> Spent:
    """Return the seconds of a forward pass without gradient: log-probabilities, values, rewards."""
    batch = Batch.of(sequences, rank)
    if not batch.tokens:
        return Spent()
    once = forward_pass(batch, rank)
    brought = rank.weight_bytes / rank.host if rank.hosted else 0.0
    gathers = batch.microbatches * (gather(rank, trains=False) + brought)
    network = once.network + exposed(gathers, once.seconds, batch, rank)
    spent = Spent(once.compute, once.memory, network)
    return spent + waits(spent, once, batch, rank, launches_of(rank))


def forward_pass(batch: Batch, rank: Rank) -> Spent:
    """Return compute, activations and exchanges of one forward pass over all microbatches."""
    shape, layout, compiled = rank.shape, rank.layout, rank.settings.compiled
    parts = layout.tp * layout.pp
    every, _ = operations(batch, rank)
    each = batch.tokens / batch.microbatches
    travelled = Widths.of(shape, layout).travelled(compiled=compiled)
    travelled += AdapterWidths.of(rank.adapter).travelled(compiled=compiled)
    moved = batch.tokens * rank.layers * travelled
    if shape.head in ("lm", "lm+value"):
        moved += batch.targets * LOGIT_TRAVEL * shape.vocab / parts
    sends = rank.along("pp").send(each * shape.hidden * BF16)
    exchange = rank.layers * rank.layer_exchange(each) + sends
    return Spent(
        compute=max(every / parts / rank.flops, weights_seconds(batch, rank)),
        memory=moved / rank.hbm,
        network=batch.microbatches * exchange,
    )


def backward_pass(batch: Batch, rank: Rank) -> Spent:
    """Return compute, activations and exchanges of the backward pass of all microbatches.

    It does twice the forward's operations (Kaplan et al. 2020, arXiv:2001.08361, sec. 2.1): for
    gradients of what comes in, and of weights. Those that are fixed have none.
    """
    once, (every, fixed) = forward_pass(batch, rank), operations(batch, rank)
    parts, reads = rank.layout.tp * rank.layout.pp, 1 if rank.adapter else 2
    compute = (2 * every - fixed) / parts / rank.flops
    beside = AdapterWidths.of(rank.adapter)
    less = 2 * beside.travelled(compiled=rank.settings.compiled) - beside.returned
    return Spent(
        compute=max(compute, reads * weights_seconds(batch, rank)),
        memory=2 * once.memory - batch.tokens * rank.layers * less / rank.hbm,
        network=once.network,
    )


def operations(batch: Batch, rank: Rank) -> tuple[float, float]:
    """Return the operations of a forward pass, and how many of them are in weights that are fixed.

    These are the matrices of an adapter's base.
    """
    shape = rank.shape
    inside = batch.tokens * shape.body_flops + batch.targets * shape.head_flops
    beside = batch.tokens * rank.adapter_flops
    every = inside + beside + batch.pairs * shape.attention_flops
    return every, inside if rank.adapter else 0.0


def weights_seconds(batch: Batch, rank: Rank) -> float:
    """Return the seconds to read the weights of a stage for each microbatch."""
    each = batch.tokens / batch.microbatches
    return batch.microbatches * rank.weights_read(each) / rank.hbm


def waits(spent: Spent, work: Spent, batch: Batch, rank: Rank, launches: float) -> Spent:
    """Return the seconds of the start, of stages that wait, and of GPUs that wait for Python.

    Pipeline stages wait (pp - 1) microbatches of the `work` (Narayanan et al. 2021,
    arXiv:2104.04473, sec. 2.2.1).
    """
    host = launches * rank.speeds.launch * rank.layers * batch.microbatches
    stages = max(work.seconds, host) * (rank.layout.pp - 1) / batch.microbatches
    return Spent(overhead=rank.speeds.start + stages + max(0.0, host - spent.seconds))


def launches_of(rank: Rank, forwards: int = 1, *, backward: bool = False) -> float:
    """Return what Python launches for a layer and microbatch, in forward passes.

    Measured on one H200's host (docs/compiler.md): a backward pass takes 3.5 of a forward; what is
    compiled, half; FSDP's hooks add 2.3 to each pass.
    """
    passes = forwards + (backward and rank.settings.checkpointing)
    adapters = AdapterWidths.of(rank.adapter).count
    forth, back = 1.0 + ADAPTER * adapters, BACKWARD + ADAPTER_BACKWARD * adapters
    kernels = (passes * forth + back * backward) * (0.5 if rank.settings.compiled else 1.0)
    return kernels + HOOKS * (passes + backward) * (rank.layout.fsdp > 1)


def layer_weights(rank: Rank) -> float:
    """Return the bytes of a layer's weights on a rank, once gathered."""
    return rank.base_bytes(layer_count) + (layer_gradients(rank) if rank.adapter else 0.0)


def layer_gradients(rank: Rank) -> float:
    """Return the bytes of a layer's gradients on a rank, before FSDP divides them."""
    return rank.settings.gradient_bytes * layer_count(rank.trained, rank.layout)


def end_weights(rank: Rank, *, trains: bool) -> float:
    """Return the bytes of the tables and the head on a rank, once gathered.

    Those that are trained are gathered as they are kept, and narrowed as they are read.
    """
    if trains and not rank.adapter:
        s = rank.settings
        return max(s.weight_bytes, s.master_bytes) * end_count(rank.shape, rank.layout)
    return rank.base_bytes(end_count)


def end_gradients(rank: Rank) -> float:
    """Return the bytes of their gradients, before FSDP divides them."""
    return rank.settings.gradient_bytes * end_count(rank.trained, rank.layout)


def gather(rank: Rank, *, trains: bool) -> float:
    """Return the seconds to gather all weights for one pass over a microbatch.

    ZeRO's third stage (Rajbhandari et al. 2019, arXiv:1910.02054, sec. 7.2.2) gathers them for the
    forward and for the backward pass, and sums gradients once.
    """
    fsdp, ends = rank.along("fsdp"), end_weights(rank, trains=trains)
    return rank.layers * fsdp.all_gather(layer_weights(rank)) + fsdp.all_gather(ends)


def exposed(seconds: float, busy: float, batch: Batch, rank: Rank) -> float:
    """Return the part of communication that computing doesn't hide: at least one layer's."""
    return max(seconds - busy, seconds / (rank.layers * batch.microbatches))
