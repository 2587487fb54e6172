"""How often a clip is active: shares of trained tokens, without gradient."""

import torch
from torch import Tensor

from flowrl.functional.ragged import select
from flowrl.functional.reductions import token_mean
from flowrl.functional.surrogate import dual_floor, objectives, selected, sequence_ratio


def clip_fraction(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
) -> Tensor:
    """Return f32[], the share of trained tokens whose clipped term is the smaller one."""
    new, old, advantages = selected(mask, new.detach(), old, advantages)
    free, held = objectives(new, old, advantages, clip, clip_high)
    return token_mean((held < free).to(new.dtype), mask)


def clip_fractions(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return f32[] three times: `clip_fraction`, and its shares at the lower and the upper bound.

    The lower bound holds tokens of negative advantage whose ratio fell, the upper one tokens of
    positive advantage whose ratio rose.
    """
    new, old, advantages = selected(mask, new.detach(), old, advantages)
    free, held = objectives(new, old, advantages, clip, clip_high)
    active = held < free
    shares = [active, active & (advantages < 0), active & (advantages > 0)]
    both, low, high = (token_mean(share.to(new.dtype), mask) for share in shares)
    return both, low, high


def sequence_clip_fractions(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float = 3e-4,
    clip_high: float | None = 4e-4,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return `clip_fractions` of the ratios of sequences; each of its trained tokens counts."""
    ratio, mean = sequence_ratio(new.detach(), old, advantages, mask, lengths=lengths)
    zero = torch.zeros_like(ratio)
    return clip_fractions(ratio, zero, mean, mask, clip=clip, clip_high=clip_high)


def ratio_clip_fraction(
    new: Tensor, old: Tensor, mask: Tensor, *, clip: float | None = None, clip_high: float = 4.0
) -> Tensor:
    """Return f32[], the share of trained tokens whose ratio is outside [1 - clip, 1 + clip_high].

    What CISPO changes, whatever the advantage.
    """
    new, old = select(mask, new.detach(), old)
    ratio = (new - old).exp()
    outside = ratio > 1 + clip_high
    if clip is not None:
        outside = outside | (ratio < 1 - clip)
    return token_mean(outside.to(new.dtype), mask)


def dual_clip_fraction(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    dual_clip: float,
    clip: float = 0.2,
    clip_high: float | None = None,
) -> Tensor:
    """Return f32[], the share of trained tokens whose objective is held up by the dual clip."""
    new, old, advantages = selected(mask, new.detach(), old, advantages)
    free, held = objectives(new, old, advantages, clip, clip_high)
    bound = torch.minimum(free, held) < dual_floor(advantages, dual_clip)
    return token_mean(bound.to(new.dtype), mask)
