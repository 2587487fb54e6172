"""What is kept of a model that trains, and what of it waits in host memory."""

import attrs

from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.weights import shard_count


@attrs.frozen
class Kept:
    """Bytes of a rank's part of a model that trains (ZeRO, arXiv:1910.02054, sec. 3.1).

    Of a model with an adapter, that alone has gradients and moments; it is its own master. So are
    weights that FSDP divides: it narrows them as they leave.

    Attributes:
        weights: those that passes read.
        gradients: summed over microbatches.
        masters: wider weights behind them (Micikevicius et al. 2018, arXiv:1710.03740, sec. 3.1).
        moments: AdamW's.
    """

    weights: int
    gradients: int
    masters: int
    moments: int

    @classmethod
    def of(cls, rank: Rank) -> "Kept":
        """Return what a trainer keeps on its fullest rank."""
        s, own = rank.settings, shard_count(rank.trained, rank.layout)
        weights, masters = rank.weight_bytes, 0 if rank.adapter else own * s.master_bytes
        if masters and rank.layout.fsdp > 1:
            weights, masters = masters, 0
        return cls(weights, own * s.gradient_bytes, masters, own * s.moment_bytes)

    @property
    def optimizer(self) -> int:
        """Bytes of the optimizer's states, masters included."""
        return self.masters + self.moments

    @property
    def lasting(self) -> int:
        """Bytes of the weights that the others can be made of: masters, if there are any."""
        return self.masters or self.weights

    @property
    def all(self) -> int:
        """Bytes of all that can't be made of something else."""
        return self.lasting + self.gradients + self.moments


def fetched_seconds(tokens: float, rank: Rank) -> float:
    """Return the seconds of an update between a GPU and its host that nothing hides.

    Moments are fetched for the step and put away (Ren et al. 2021, arXiv:2101.06840); the inputs of
    checkpointed layers leave as they are made, and come back as they are needed.

    Args:
        tokens: that the rank trains on.
        rank: of the trainer.
    """
    s, inputs = rank.settings, tokens * rank.layers * input_bytes(rank)
    moments = Kept.of(rank).moments if s.offload == "optimizer" else 0
    return 2 * (moments + inputs * (s.checkpointing and s.offload_activations)) / rank.host


def streamed_seconds(passes: int, rank: Rank) -> float:
    """Return the seconds of a microbatch for weights that are on the host, and for gradients.

    A rank's part comes before each pass, and before the backward one; its gradients leave. All of
    it goes layer by layer, beside what is computed.

    Args:
        passes: forward ones.
        rank: of the trainer.
    """
    kept = Kept.of(rank)
    moved = (passes + 1) * kept.lasting + kept.gradients
    return moved / rank.host if rank.hosted else 0.0


def input_bytes(rank: Rank) -> float:
    """Return the bytes of a token that a checkpointed layer keeps on a rank: its input."""
    return 2 * rank.shape.hidden / rank.layout.tp
