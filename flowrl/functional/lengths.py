"""Lengths: their penalty, and how to share rows out by them.

`ops.minibatches`, `ops.microbatches` and the microbatches of an update are divided by these.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from torch import Tensor

from flowrl.functional.refusals import SampleRefusedError


def overlong_penalty(
    token_counts: Tensor, *, max_len: int, cache_len: int, factor: float = 1.0
) -> Tensor:
    """Return 0 up to max_len - cache_len tokens, then linearly down to -factor at max_len.

    Args:
        token_counts: i64[...], tokens of each response.
        max_len: the length at which the penalty is whole.
        cache_len: over how many tokens before that it grows; in [1, max_len].
        factor: the whole penalty, in reward units.

    Returns:
        f32[...], in reward units, to add to the reward.

    Raises:
        ValueError: `cache_len` is out of range.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, eq. 13.
    """
    if not 1 <= cache_len <= max_len:
        raise ValueError(f"cache_len must be in [1, max_len = {max_len}]; got {cache_len}")
    over = token_counts - (max_len - cache_len)
    return -factor * (over / cache_len).clamp(0, 1)


def balance(token_counts: Sequence[int], k: int) -> list[list[int]]:
    """Share rows out over `k` parts of nearly equal tokens, none empty.

    The longest row goes first, each to the part that has the least: the largest part is at most
    4/3 - 1/(3k) times what it has to be.

    Args:
        token_counts: tokens of each row.
        k: the number of parts.

    Returns:
        The rows of each part, ascending.

    Raises:
        ValueError: there are fewer rows than parts.

    Source: Graham 1969, "Bounds on multiprocessing timing anomalies", theorem 2.
    """
    if not 1 <= k <= len(token_counts):
        raise ValueError(f"k must be in [1, rows = {len(token_counts)}]; got {k}")
    parts: list[list[int]] = [[] for _ in range(k)]
    loads = [(0, 0, part) for part in range(k)]  # tokens, rows, part
    heapify(loads)
    for row in sorted(range(len(token_counts)), key=lambda row: -token_counts[row]):
        tokens, rows, part = heappop(loads)
        parts[part].append(row)
        heappush(loads, (tokens + token_counts[row], rows + 1, part))
    return [sorted(part) for part in parts]


def micro_batches(token_counts: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Pack rows into few bins of at most `max_tokens`, by first fit of the longest first.

    Args:
        token_counts: tokens of each row.
        max_tokens: the most that a bin may hold.

    Returns:
        The rows of each bin, ascending: at most 11/9 of the fewest possible, plus 2/3.

    Raises:
        SampleRefusedError: a row is longer than a bin.

    Source: Dosa 2007, "The tight bound of first fit decreasing bin-packing".
    """
    bins: list[list[int]] = []
    room: list[int] = []
    for row in sorted(range(len(token_counts)), key=lambda row: -token_counts[row]):
        size = token_counts[row]
        if size > max_tokens:
            problem = f"row {row} has {size} tokens, more than max_tokens = {max_tokens}"
            raise SampleRefusedError(problem, row)
        place = next((i for i, left in enumerate(room) if left >= size), len(bins))
        if place == len(bins):
            bins.append([])
            room.append(max_tokens)
        bins[place].append(row)
        room[place] -= size
    return [sorted(rows) for rows in bins]


def micro_batches_per_rank(
    token_counts: Sequence[Sequence[int]], max_tokens: int
) -> list[list[list[int]]]:
    """Return each rank's micro-batches, of which all ranks have as many."""
    return as_many([micro_batches(counts, max_tokens) for counts in token_counts])


def as_many(ranks: Sequence[list[list[int]]]) -> list[list[list[int]]]:
    """Return each rank's micro-batches with empty ones behind, so that all ranks have as many.

    A rank that skips a micro-batch would leave the others waiting in a collective.
    """
    most = max(map(len, ranks), default=0)
    return [bins + [[] for _ in range(most - len(bins))] for bins in ranks]


def split_even(n: int, k: int) -> list[int]:
    """Return `k` sizes that add up to `n` and differ by at most one, the larger ones first.

    Raises:
        ValueError: `k` isn't above 0.
    """
    if k < 1:
        raise ValueError(f"k must be above 0; got {k}")
    return [n // k + (part < n % k) for part in range(k)]
