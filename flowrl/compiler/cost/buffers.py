"""Bytes of what comes and goes in a pass: logits, whole layers, gradients on their way."""

from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.weights import largest_count

HELD = 1.3
"""Times what buffers take that torch's allocator holds for them: freed blocks of other sizes
(docs/compiler.md)."""


def logits(rank: Rank, each: int) -> int:
    """Return the bytes of one chunk of logits: of responses only, a part of a microbatch."""
    if rank.shape.head not in ("lm", "lm+value"):
        return 0
    s, workload = rank.settings, rank.workload
    share = workload.response_tokens.mean / workload.sequence_tokens
    tokens = min(s.head_tokens, s.microbatch_tokens * share)
    return round(HELD * tokens * rank.shape.vocab * each / rank.layout.tp)


def gathered(layer: float, ends: float, rank: Rank) -> int:
    """Return the bytes of two whole layers, one in use, the next on its way; and of both ends."""
    return round((HELD * 2 * layer + ends) * (rank.layout.fsdp > 1))


def narrow_gradient(rank: Rank) -> int:
    """Return the bytes of a gradient that is narrower than their sum, until it is added to that.

    Each goes as it comes, so it is that of the largest parameter. Those that FSDP divides are among
    what it gathers; an adapter's are small.
    """
    s, layout = rank.settings, rank.layout
    if rank.adapter or layout.fsdp > 1 or s.weight_bytes >= s.gradient_bytes:
        return 0
    return round(HELD * s.weight_bytes * largest_count(rank.shape) / (layout.tp * layout.ep))
