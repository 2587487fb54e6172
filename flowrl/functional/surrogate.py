"""PPO's clipped surrogate and its kin; one number a token, not reduced."""

import math

import torch
from torch import Tensor

from flowrl.functional.ragged import select, spread
from flowrl.functional.reductions import row_mean


def clipped_surrogate(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor | None = None,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
) -> Tensor:
    """Return the negated PPO objective, -min(r A, clip(r, 1 - clip, 1 + clip_high) A).

    Args:
        new: f32[..., token], log-probabilities under the policy that is trained.
        old: f32[..., token], under the policy that sampled; no gradient.
        advantages: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        clip: how far the ratio r = exp(new - old) may fall below 1.
        clip_high: how far it may rise above 1; `clip` if None (DAPO's clip-higher: 0.28).
        dual_clip: c > 1; where A < 0 the objective isn't below c A.

    Returns:
        f32[..., token], in units of the advantage.

    Raises:
        ValueError: `dual_clip` isn't above 1.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; Ye et al. 2020, arXiv:1912.09729
        (dual clip); Yu et al. 2025 (DAPO), arXiv:2503.14476, sec. 3.1 (clip-higher).
    """
    new, old, advantages = selected(mask, new, old, advantages)
    free, held = objectives(new, old, advantages, clip, clip_high, dual_clip)
    objective = torch.where(held < free, held, free)
    if dual_clip is not None:
        floor = dual_floor(advantages, dual_clip)
        objective = torch.where(objective < floor, floor, objective)
    return -objective


def sequence_logratio(
    new: Tensor, old: Tensor, mask: Tensor, *, lengths: Tensor | None = None
) -> Tensor:
    """Return each row's mean log-ratio at all of its tokens: the log of GSPO's s_i.

    Args:
        new: f32[..., token], log-probabilities under the policy that is trained.
        old: f32[..., token], under the policy that sampled.
        mask: bool[..., token], True on trained tokens.
        lengths: i64[row] if packed.

    Returns:
        f32[..., token], in nats.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 7.
    """
    new, old = select(mask, new, old)
    mean = spread(row_mean(new - old, mask, lengths=lengths), mask, lengths=lengths)
    return select(mask, mean)[0]


def sequence_ratio(
    new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, *, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return each row's `sequence_logratio` and mean advantage, at all of its tokens."""
    mean = spread(row_mean(advantages, mask, lengths=lengths), mask, lengths=lengths)
    return sequence_logratio(new, old, mask, lengths=lengths), mean


def sequence_surrogate(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float = 3e-4,
    clip_high: float | None = 4e-4,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return GSPO's negated objective: one clipped ratio a sequence, at each of its tokens.

    Reduce it with `sequence_mean`, which gives back the sequence's own number. Its advantage is
    the mean over the trained tokens.

    Args:
        new: f32[..., token], log-probabilities under the policy that is trained.
        old: f32[..., token], under the policy that sampled; no gradient.
        advantages: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        clip: how far the sequence's ratio may fall below 1.
        clip_high: how far it may rise above 1; `clip` if None.
        lengths: i64[row] if packed.

    Returns:
        f32[..., token], in units of the advantage.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 5-7.
    """
    ratio, mean = sequence_ratio(new, old, advantages, mask, lengths=lengths)
    return clipped_surrogate(
        ratio, torch.zeros_like(ratio), mean, mask, clip=clip, clip_high=clip_high
    )


def decoupled(
    new: Tensor,
    proximal: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    mask: Tensor | None = None,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    weight_cap: float | None = None,
) -> Tensor:
    """Return PPO's loss around a proximal policy, weighted for the policy that sampled.

    The ratio is clipped around `proximal`; w = exp(proximal - behaviour) is held constant.

    Args:
        new: f32[..., token], log-probabilities under the policy that is trained.
        proximal: f32[..., token], under the policy that the step may not leave; no gradient.
        behaviour: f32[..., token], under the (older) policy that sampled.
        advantages: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        clip: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1; `clip` if None.
        weight_cap: w isn't above it; None for no cap.

    Returns:
        f32[..., token], in units of the advantage.

    Source: Hilton et al. 2022, arXiv:2110.00641; Fu et al. 2025 (AReaL), arXiv:2505.24298.
    """
    proximal, behaviour = select(mask, proximal, behaviour)
    weight = (proximal - behaviour).detach().exp()
    if weight_cap is not None:
        weight = weight.clamp(max=weight_cap)
    return weight * clipped_surrogate(
        new, proximal, advantages, mask, clip=clip, clip_high=clip_high
    )


def selected(
    mask: Tensor | None, new: Tensor, old: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three in one shape, with 0 where `mask` is False."""
    new, old, advantages = select(mask, *torch.broadcast_tensors(new, old, advantages))
    return new, old, advantages


def objectives(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    clip: float,
    clip_high: float | None,
    dual_clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return r A and clip(r) A.

    Where a bound holds for every large r, r stays finite: a slope of 0 times infinity is NaN.
    """
    gap = new - old
    bounded = (advantages >= 0) | (dual_clip is not None)
    most = math.log(torch.finfo(gap.dtype).max) - 1
    ratio = torch.where(bounded, gap.clamp(max=most), gap).exp()
    held = ratio.clamp(1 - clip, 1 + (clip if clip_high is None else clip_high))
    return ratio * advantages, held * advantages


def dual_floor(advantages: Tensor, dual_clip: float) -> Tensor:
    """Return what the objective may not fall below: c A where A < 0."""
    if not dual_clip > 1:
        raise ValueError(f"dual_clip must be above 1; got {dual_clip}")
    return torch.where(advantages < 0, dual_clip * advantages, -torch.inf)
