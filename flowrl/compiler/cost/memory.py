"""Bytes of a seat on its fullest GPU, itemised."""

from math import inf
from typing import Literal

import attrs

from flowrl.compiler.cost.activations import LOGIT_PASSING, LOGIT_STORED, AdapterWidths, Widths
from flowrl.compiler.cost.buffers import gathered, logits, narrow_gradient
from flowrl.compiler.cost.cache import (
    GRAPHS,
    at_once,
    free_bytes,
    peak_tokens,
    sharing,
    standing_bytes,
    token_bytes,
)
from flowrl.compiler.cost.forward import (
    end_gradients,
    end_weights,
    layer_gradients,
    layer_weights,
)
from flowrl.compiler.cost.kept import Kept, input_bytes
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.weights import shard_count
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.target import Target
from flowrl.compiler.tasks import Seat
from flowrl.ir.layout import Layout

Residency = Literal["resident", "offload", "drop", "alias"]
"""What becomes of a seat's weights and optimizer while another seat of its pool works: they stay;
go to host memory; are let go and brought anew; or are those of the train seat all along."""

CONTEXT = 600_000_000
"""Bytes of a CUDA context with the libraries that a trainer or a scorer loads."""


@attrs.frozen
class Memory:
    """Bytes of one seat on its fullest GPU while it works, and in its host's memory.

    Attributes:
        weights: those that passes read.
        gradients: summed over microbatches.
        optimizer: its states, masters included.
        activations: at their peak.
        kv_cache: at its peak; or all that an engine reserves.
        engine: context, libraries and graphs: there as long as the process is. Of a trainer, with
            all that an engine keeps beside it which samples for evaluations alone.
        buffers: logits, and weights and gradients that FSDP has whole, with what the allocator
            holds for them; or moments that were fetched for a step.
        waiting: in host memory, whoever works; on no GPU.
        fixed: of the weights, those that nothing brings anew: the base of an adapter.
        reserved: of the KV cache, what an engine that doesn't sleep has while others work.
    """

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    kv_cache: int = 0
    engine: int = 0
    buffers: int = 0
    waiting: int = 0
    fixed: int = 0
    reserved: int = 0

    @property
    def total(self) -> int:
        """All items together."""
        return sum(self.items.values())

    @property
    def items(self) -> dict[str, int]:
        """Bytes of the GPU by item, in the order of the attributes."""
        return {name: getattr(self, name) for name in ITEMS}

    def awake(self, residency: Residency) -> "Memory":
        """Return what it takes while it works: aliased weights are counted where they train."""
        return attrs.evolve(self, weights=0) if residency == "alias" else self

    def asleep(self, residency: Residency) -> "Memory":
        """Return what it takes while another seat works.

        Activations, buffers and gradients go in each case; so do caches that are not reserved.
        """
        if residency in ("offload", "drop"):
            return Memory(engine=self.engine)
        return Memory(
            weights=self.awake(residency).weights,
            optimizer=self.optimizer,
            kv_cache=self.reserved,
            engine=self.engine,
        )

    def leaves(self, residency: Residency) -> int:
        """Return what goes to host memory while another seat works."""
        gone = {"offload": self.weights + self.optimizer, "drop": self.fixed}
        return gone.get(residency, 0)

    def host(self, residency: Residency) -> int:
        """Return what it takes of host memory, for each GPU."""
        return self.waiting + self.leaves(residency)


ITEMS = ("weights", "gradients", "optimizer", "activations", "kv_cache", "engine", "buffers")
"""What takes memory of a GPU."""


def memory(
    seat: Seat,
    shape: ModelShape,
    layout: Layout,
    ranks: range,
    target: Target,
    sequences: float = inf,
    cache_share: float = 1.0,
) -> Memory:
    """Return the bytes of a seat on the fullest rank.

    Args:
        seat: a use of a model.
        shape: of the model.
        layout: of its weights.
        ranks: that they lie over.
        target: machines, lengths and settings.
        sequences: of its largest task, over all ranks; a cache never holds more. Unbounded, it
            holds what the settings and the GPU allow.
        cache_share: how much an engine takes of the cache that it would have with the GPUs for
            itself.
    """
    kind = {"train": "update", "generate": "generate"}.get(seat.use, "logprobs")
    rank = Rank.of(kind, seat.role, shape, layout, ranks, target, cache_share)
    if seat.use == "train":
        return _training(rank)
    return _generating(rank, sequences) if seat.use == "generate" else _scoring(rank)


def _training(rank: Rank) -> Memory:
    """What is kept, and on top of it what passes take; or at a step, the moments fetched for it."""
    kept, (inside, waiting) = Kept.of(rank), _activations(rank)
    ends = end_weights(rank, trains=True) + end_gradients(rank)
    whole = gathered(layer_weights(rank) + layer_gradients(rank), ends, rank)
    passes = Memory(
        weights=kept.weights,
        gradients=kept.gradients,
        optimizer=kept.optimizer,
        activations=inside,
        engine=CONTEXT + _evaluating(rank),
        buffers=logits(rank, LOGIT_STORED) + whole + narrow_gradient(rank),
        waiting=waiting,
    )
    if rank.hosted:
        return attrs.evolve(passes, weights=0, gradients=0, optimizer=0, waiting=waiting + kept.all)
    if rank.settings.offload != "optimizer":
        return passes
    passes = attrs.evolve(passes, optimizer=kept.masters, waiting=waiting + kept.moments)
    step = attrs.evolve(passes, activations=0, buffers=kept.moments)
    return max(passes, step, key=lambda moment: moment.total)


def _evaluating(rank: Rank) -> int:
    """Return what an engine has beside a trainer that samples for evaluations alone, whole."""
    if not rank.settings.evaluates:
        return 0
    return standing_bytes(attrs.evolve(rank, layout=Layout(dp=rank.layout.size)))


def _activations(rank: Rank) -> tuple[int, int]:
    """Return the bytes that wait for the backward pass on the GPU, and in host memory.

    With pipeline stages, the first holds `pp` microbatches (Narayanan et al. 2021,
    arXiv:2104.04473, sec. 2.2.1), so the activations of as many layers as there are without.
    Checkpointed layers keep their input, one of them all.
    """
    s, layers = rank.settings, rank.shape.layers
    layer = Widths.of(rank.shape, rank.layout).stored + AdapterWidths.of(rank.adapter).stored
    if not s.checkpointing:
        return round(s.microbatch_tokens * layer * layers), 0
    inputs = input_bytes(rank)
    waiting = inputs * (layers - 1) if s.offload_activations else 0.0
    inside = inputs * layers - waiting + layer
    return round(s.microbatch_tokens * inside), round(s.microbatch_tokens * waiting)


def _scoring(rank: Rank) -> Memory:
    s = rank.settings
    whole = gathered(layer_weights(rank), end_weights(rank, trains=False), rank)
    return Memory(
        weights=0 if rank.hosted else rank.weight_bytes,
        activations=round(s.microbatch_tokens * Widths.of(rank.shape, rank.layout).passing),
        engine=CONTEXT,
        buffers=logits(rank, LOGIT_PASSING) + whole,
        waiting=rank.weight_bytes if rank.hosted else 0,
    )


def _generating(rank: Rank, sequences: float) -> Memory:
    running = at_once(rank, sequences)
    tokens = running * peak_tokens(rank.workload, running, sharing(rank.workload, sequences))
    base = shard_count(rank.shape, rank.layout) * rank.settings.weight_bytes
    buffers = round(running * rank.shape.vocab * LOGIT_PASSING / rank.layout.tp)
    reserved = _reserved(rank, buffers)
    return Memory(
        weights=rank.weight_bytes,
        kv_cache=reserved or round(tokens * token_bytes(rank)),
        engine=GRAPHS,
        buffers=buffers,
        fixed=base if rank.adapter else 0,
        reserved=reserved,
    )


def _reserved(rank: Rank, buffers: int) -> int:
    """Return the cache that an engine reserves: of a share of the GPU, what all else leaves."""
    reserve = rank.settings.reserve
    if reserve is None:
        return 0
    beside = buffers if reserve.cache_bytes is None else 0
    return max(0, round(free_bytes(rank)) - beside)
