"""Which groups of samples carry a signal, and which samples of a group to learn from."""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import attrs
import torch
from torch import Tensor

from flowrl.functional.groups import Groups
from flowrl.functional.rewards import require_finite, usable

Key = TypeVar("Key")


def has_signal(rewards: Tensor, *, groups: Tensor | None = None) -> Tensor:
    """Return whether a group's rewards are all finite and not all the same.

    Largest and smallest are compared, not the deviation: that of three 0.1s is 1.4e-17.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`.
        groups: i64[N], the group of each sample.

    Returns:
        bool[...], or bool[group] with `groups`, in the order in which the groups first appear. A
        group of one has none.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, sec. 3.2.
    """
    by = Groups.of(rewards, groups)
    flat = rewards.flatten()
    finite = by.min(usable(flat).to(flat.dtype)) > 0
    kept = flat.nan_to_num()
    signal = finite & (by.max(kept) > by.min(kept))
    return signal.view(rewards.shape[:-1]) if groups is None else signal


def policy_filter(
    rewards: Tensor, *, keep: str, seed: int = 0, groups: Tensor | None = None
) -> Tensor:
    """Return which samples of each group PF-PPO keeps, by the rank of their rewards.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`.
        keep: "best" alone, "best_random" with one of the others drawn evenly, or "best_worst".
        seed: of the draw.
        groups: i64[N], the group of each sample.

    Returns:
        bool of the same axes. Of equal rewards the first is the best, and the next the worst; a
        group of one keeps it.

    Raises:
        SampleRefusedError: a reward isn't finite.

    Source: Zhang et al. 2024, arXiv:2409.06957, sec. 4.
    """
    require_finite(rewards, groups=groups)
    by, flat = Groups.of(rewards, groups), rewards.flatten()
    best = _first_largest(by, flat)
    kept = torch.zeros(len(flat), dtype=torch.bool, device=flat.device)
    kept[best] = True
    if keep != "best":
        drawn = torch.rand(len(flat), generator=torch.Generator().manual_seed(seed))
        rank = -flat if keep == "best_worst" else drawn.to(flat)
        kept[_first_largest(by, rank.masked_fill(kept, -torch.inf))] = True
    return kept.view(rewards.shape)


def _first_largest(by: Groups, x: Tensor) -> Tensor:
    """Return i64[G], the place of the first of the largest elements of each group."""
    places = torch.arange(len(x), dtype=torch.float64, device=x.device)
    return by.min(places.where(x == by.spread(by.max(x)), torch.inf)).to(torch.int64)


@attrs.frozen
class DrawnGroups(Generic[Key]):
    """What came of drawing groups.

    Attributes:
        batch: the first `target` with a signal.
        surplus: the others of the last round that have one.
        dropped: those without.
        rounds_used: how many rounds were read.
    """

    batch: list[Key]
    surplus: list[Key]
    dropped: list[Key]
    rounds_used: int


def dynamic_filter(
    rounds: Iterable[Iterable[tuple[Key, Sequence[float]]]], *, target: int, max_rounds: int
) -> DrawnGroups[Key]:
    """Read rounds of groups, in order, until `target` of them have a signal.

    What `ops.sample_until` does with `keep=ops.has_signal`, on plain numbers.

    Args:
        rounds: for each round, the key and rewards of its groups; read no further than needed.
        target: groups wanted.
        max_rounds: the most rounds to read.

    Raises:
        ValueError: the rounds ended, or reached `max_rounds`, before; says what was found.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, sec. 3.2.
    """
    kept: list[Key] = []
    dropped: list[Key] = []
    used = 0
    for used, groups in zip(range(1, max_rounds + 1), rounds, strict=False):
        for key, rewards in groups:
            group = torch.tensor([rewards], dtype=torch.float64)
            signal = len(rewards) > 0 and has_signal(group).item()
            (kept if signal else dropped).append(key)
        if len(kept) >= target:
            return DrawnGroups(kept[:target], kept[target:], dropped, used)
    raise ValueError(
        f"wanted {target} groups with different rewards; found {len(kept)} in {used} rounds "
        f"(max_rounds = {max_rounds}, {len(dropped)} groups dropped)"
    )
