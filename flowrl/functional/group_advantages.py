"""Advantages of a sample over the others of its group: no critic."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from flowrl.functional.groups import Groups
from flowrl.functional.ragged import select
from flowrl.functional.rewards import combine_rewards, require_finite


def group_advantage(
    rewards: Tensor,
    *,
    norm_by_std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    nonfinite: Literal["raise", "exclude"] = "raise",
    sample_ids: list[str] | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """Centre each reward on its group's mean and divide by the group's deviation.

    A = (r - mean) / (std + eps). A group of one, or of equal rewards, gives exactly 0.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`; in any reward unit.
        norm_by_std: divide by the deviation (GRPO), or don't (Dr. GRPO).
        ddof: the deviation divides by n - ddof.
        eps: added to the deviation, in reward units.
        nonfinite: "raise" on a NaN or infinite reward; "exclude" leaves it out of the statistics
            and gives it 0 (its tokens should leave the loss's mask as well: `usable`).
        sample_ids: names of the samples for that error; the flat index if None.
        groups: i64[N], the group of each sample.

    Returns:
        The form of `rewards`; unitless, or in reward units without `norm_by_std`.

    Raises:
        ValueError: a reward isn't finite, or an option isn't known.

    Source: Shao et al. 2024, arXiv:2402.03300, sec. 4.1.2; Liu et al. 2025, arXiv:2503.20783.
    """
    if nonfinite not in ("raise", "exclude"):
        raise ValueError(f'nonfinite must be "raise" or "exclude"; got {nonfinite!r}')
    if nonfinite == "raise":
        require_finite(rewards, sample_ids, groups=groups)
    used = rewards.isfinite().flatten()
    (kept,) = select(used, rewards.flatten())
    by = Groups.of(rewards, groups)
    size = _size(kept, by)
    counted = used.to(kept.dtype)
    centred = _centred(kept / by.spread(size), counted, by)
    centred = torch.where(used & _varied(rewards.flatten(), used, by), centred, 0.0)
    if norm_by_std:
        std = (by.sum(centred.square()) / (by.sum(counted) - ddof).clamp(min=1)).sqrt()
        centred = centred / by.spread(torch.where(std > 0, std + eps / size, 1.0))
    else:
        centred = centred * by.spread(size)
    return centred.reshape(rewards.shape)


def _size(rewards: Tensor, by: Groups) -> Tensor:
    """Return [G], the power of 2 of each group's largest reward; 1 of zeros.

    It divides exactly, and sums and squares of what is divided by it are never out of range.
    """
    largest = by.max(rewards.abs())
    _, exponent = torch.frexp(largest)
    power = torch.ldexp(torch.ones_like(largest), exponent - 1)
    return torch.where(largest > 0, power.clamp(min=torch.finfo(power.dtype).tiny), 1.0)


def _centred(x: Tensor, weights: Tensor, by: Groups) -> Tensor:
    """Subtract each group's weighted mean.

    Twice: of numbers that are large and close together, the first mean is rounded to their grid.
    """
    total = by.sum(weights).clamp(min=1)
    for _ in range(2):
        x = x - by.spread(by.sum(weights * x) / total)
    return x


def leave_one_out(rewards: Tensor, *, groups: Tensor | None = None) -> Tensor:
    """Subtract from each reward the mean of the others in its group (RLOO).

    A group of one, or of equal rewards, gives exactly 0.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`.
        groups: i64[N], the group of each sample.

    Returns:
        The form of `rewards`, in reward units.

    Source: Ahmadian et al. 2024, arXiv:2402.14740, eq. 8.
    """
    by = Groups.of(rewards, groups)
    count = by.spread(by.sizes).reshape(rewards.shape).to(rewards.dtype)
    centred = group_advantage(rewards, norm_by_std=False, groups=groups)
    return centred * (count / (count - 1).clamp(min=1))


def opo(rewards: Tensor, token_counts: Tensor, *, groups: Tensor | None = None) -> Tensor:
    """Subtract from each reward its group's mean, weighted by response length.

    Args:
        rewards: f32[..., sample], or f32[N] with `groups`.
        token_counts: i64, the same form: trained tokens of each response.
        groups: i64[N], the group of each sample.

    Returns:
        The form of `rewards`, in reward units; exactly 0 in a group of one or of equal rewards.

    Source: Hao et al. 2025, arXiv:2505.23585.
    """
    require_finite(rewards, groups=groups)
    by = Groups.of(rewards, groups)
    flat = rewards.flatten()
    size = by.spread(_size(flat, by))
    centred = _centred(flat / size, token_counts.flatten().to(flat.dtype), by) * size
    varied = _varied(flat, flat.isfinite(), by)
    return torch.where(varied, centred, 0.0).reshape(rewards.shape)


def gdpo(
    rewards: Tensor,
    *,
    weights: Sequence[float] | None = None,
    ddof: int = 1,
    eps: float = 1e-6,
    lengths: Tensor | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """Normalise each reward in its group, sum them weighted, and whiten the sums over the batch.

    Rewards of other scales or spreads keep their share, where a GRPO of their sum would follow
    the one that varies most. Groups without a signal in any reward add exact zeros to the sums.

    Args:
        rewards: f32[..., sample, reward], or packed f32[N * reward] with `lengths` and `groups`.
        weights: one a reward; all 1 if None.
        ddof: each variance divides by n - ddof.
        eps: added to each deviation, in the reward's units.
        lengths: i64[N] if packed, all equal: the rewards of each sample.
        groups: i64[N], the group of each sample.

    Returns:
        f32[..., sample], or f32[N]; unitless. One sample, or sums that are all the same, give 0.

    Raises:
        ValueError: a reward isn't finite, or the weights aren't one a reward.

    Source: Liu et al. 2026, arXiv:2601.05242.
    """
    if lengths is not None:
        if not len(lengths):  # a step without samples
            return rewards
        rewards = rewards.view(len(lengths), -1)
    parts = [group_advantage(r, ddof=ddof, eps=eps, groups=groups) for r in rewards.unbind(-1)]
    summed = combine_rewards(torch.stack(parts, -1), weights=weights)
    return group_advantage(summed.view(1, -1), ddof=ddof, eps=eps).view(summed.shape)


def _varied(rewards: Tensor, used: Tensor, by: Groups) -> Tensor:
    """Return bool[N]: whether the sample's group has two different rewards, compared exactly.

    A deviation would do so only up to rounding: that of three 0.1s is 1.4e-17.
    """
    high = by.max(rewards.where(used, -torch.inf))
    low = by.min(rewards.where(used, torch.inf))
    return by.spread(high > low)
