"""Seconds of scoring: a forward pass over packed microbatches."""

from math import ceil

import attrs

from flowrl.compiler.cost.activations import LOGIT_TRAVEL, Widths
from flowrl.compiler.cost.rank import BF16, Rank
from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.cost.weights import layer_count

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


def score_seconds(sequences: float, rank: Rank) -> Spent:
    """Return the seconds of a forward pass without gradient: log-probabilities, values, rewards."""
    batch = Batch.of(sequences, rank)
    if not batch.tokens:
        return Spent()
    once = forward_pass(batch, rank)
    gathers = batch.microbatches * gather(rank)
    network = once.network + exposed(gathers, once.seconds, batch, rank)
    spent = Spent(once.compute, once.memory, network)
    return spent + waits(spent, once, batch, rank, launches_of(rank))


def forward_pass(batch: Batch, rank: Rank) -> Spent:
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
    return Spent(
        compute=max(flops / parts / rank.flops, weights / rank.hbm),
        memory=moved / rank.hbm,
        network=batch.microbatches * exchange,
    )


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
    kernels = (passes + BACKWARD * backward) * (0.5 if rank.settings.compiled else 1.0)
    return kernels + HOOKS * (passes + backward) * (rank.layout.fsdp > 1)


def layer_bytes(rank: Rank, each: int) -> float:
    """Return what a layer's numbers take on a rank once gathered, at `each` bytes."""
    return each * layer_count(rank.shape, rank.layout)


def gather(rank: Rank) -> float:
    """Return the seconds to gather the weights of all layers for one pass over a microbatch.

    ZeRO's third stage (Rajbhandari et al. 2019, arXiv:1910.02054, sec. 7.2.2) gathers them for the
    forward and for the backward pass, and sums gradients once.
    """
    fsdp = rank.along("fsdp")
    return rank.layers * fsdp.all_gather(layer_bytes(rank, rank.settings.weight_bytes))


def exposed(seconds: float, busy: float, batch: Batch, rank: Rank) -> float:
    """Return the part of communication that computing doesn't hide: at least one layer's."""
    return max(seconds - busy, seconds / (rank.layers * batch.microbatches))
