"""The KV cache of an engine: bytes a token, and how many sequences it holds."""

from math import inf

from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.target import Workload

GRAPHS = 2_000_000_000
"""Bytes of an inference engine besides weights and cache: context, graphs, its widest batch."""


def token_bytes(rank: Rank) -> float:
    """Return the cache of one token on a rank.

    Heads are divided by `tp`, no further than there are key heads; the one low-rank state of
    latent attention is on every rank.
    """
    shape, layout = rank.shape, rank.layout
    heads = 1 if shape.dimensions.latent else min(layout.tp, shape.kv_heads)
    return shape.kv_bytes_per_token(rank.settings.kv_bytes) / (heads * layout.pp)


def sharing(workload: Workload, sequences: float) -> float:
    """Return how many of the sequences of a task have the same prompt; 1 if they aren't known."""
    return max(1.0, sequences / max(1.0, workload.prompts)) if sequences < inf else 1.0


def peak_tokens(workload: Workload, running: float, shared: float) -> float:
    """Return the most tokens that a cache holds at once, for each sequence that it runs.

    All start together: the cache grows with each step and shrinks with each that ends.

    Args:
        workload: gives the lengths.
        running: sequences at the start.
        shared: how many of them have one prompt, whose cache they share.
    """
    prompt = workload.prompt_tokens.mean / shared
    steps = workload.response_tokens.survival()
    return max((max(over, 1 / running) * (prompt + end) for _, end, over in steps), default=prompt)


def free_bytes(rank: Rank) -> float:
    """Return the bytes of a rank's KV cache at most; below 0 if weights alone are too large."""
    s = rank.settings
    taken = GRAPHS + rank.weight_bytes
    if s.reserve is None:
        return s.kv_share * (rank.gpu.usable_bytes - taken)
    if s.reserve.cache_bytes is not None:
        return s.reserve.cache_bytes
    return s.reserve.share * rank.gpu.memory_bytes - taken


def standing_bytes(rank: Rank) -> int:
    """Return what an engine has of a rank from its start to its end: weights, or its reserve."""
    beside = GRAPHS + free_bytes(rank) if rank.settings.reserve else 0
    return round(rank.weight_bytes + beside)


def lacking_bytes(rank: Rank) -> int:
    """Return what an engine's reserve lacks to hold the longest sequence; 0 if it does."""
    workload = rank.workload
    longest = workload.prompt_tokens.maximum + workload.response_tokens.maximum
    lacks = longest * token_bytes(rank) - free_bytes(rank)
    return max(0, round(lacks)) if rank.settings.reserve else 0


def at_once(rank: Rank, sequences: float) -> float:
    """Return how many sequences an engine runs at once, of a task's `sequences` in all engines."""
    s, shared = rank.settings, sharing(rank.workload, sequences)
    tokens = free_bytes(rank) / token_bytes(rank)
    running = max(1.0, sequences / rank.batches)
    for _ in range(2):  # fewer that run have a higher peak each
        running = max(1.0, min(running, tokens / peak_tokens(rank.workload, running, shared)))
    return max(1.0, rank.cache_share * min(running, s.sequences or running))
