"""Losses that keep entropy up by holding back the few tokens that would lower it most.

How much a token lowers the policy's entropy goes with its covariance over the batch,
(log pi - mean log pi) (A - mean A). Both losses choose tokens over the whole minibatch.

Source: Cui et al. 2025, arXiv:2505.22617, sec. 4.
"""

import torch
from torch import Tensor

from flowrl.functional.ragged import put_back, select
from flowrl.functional.surrogate import clipped_surrogate, objectives, selected


def clip_cov(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    fraction: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    seed: int = 0,
) -> Tensor:
    """Return the clipped surrogate, with 0 and no gradient at a few tokens of high covariance.

    They are drawn without replacement from the trained tokens that the surrogate doesn't clip
    and whose covariance is in [low, high]: floor(fraction * trained tokens), at least 1.

    Args:
        new: f32[..., token], log-probabilities under the policy that is trained.
        old: f32[..., token], under the policy that sampled; no gradient.
        advantages: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        clip: how far the ratio may fall below 1.
        clip_high: how far it may rise above 1; `clip` if None.
        fraction: the share of trained tokens to hold back.
        low: the least covariance of a candidate, in nats times advantage.
        high: the largest.
        seed: of the draw.

    Returns:
        f32[..., token], in units of the advantage.

    Source: Cui et al. 2025, arXiv:2505.22617, sec. 4.2, and the authors' code (at least 1).
    """
    surrogate = clipped_surrogate(new, old, advantages, mask, clip=clip, clip_high=clip_high)
    covariance = token_covariance(new, advantages, mask)
    free, held = objectives(*selected(mask, new.detach(), old, advantages), clip, clip_high)
    candidate = mask & (held >= free) & (covariance >= low) & (covariance <= high)
    drawn = _draw(candidate, _count(fraction, mask), seed)
    return select(~drawn, surrogate)[0]


def kl_cov(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    fraction: float = 2e-3,
    beta: float = 1.0,
) -> Tensor:
    """Return -r A, unclipped, plus beta |log r| at the tokens of the highest covariance.

    Args:
        new: f32[..., token], log-probabilities under the policy that is trained.
        old: f32[..., token], under the policy that sampled; no gradient.
        advantages: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        fraction: the share of trained tokens that are penalised; at least one is.
        beta: the coefficient of the penalty.

    Returns:
        f32[..., token], in units of the advantage.

    Source: Cui et al. 2025, arXiv:2505.22617, sec. 4.2; |log r| is the authors' estimate, in
        their code, of the paper's KL(old || new).
    """
    covariance = token_covariance(new, advantages, mask)[mask]
    new, old, advantages = selected(mask, new, old, advantages)
    top = covariance.argsort(descending=True, stable=True)[: _count(fraction, mask)]
    chosen = torch.zeros_like(covariance, dtype=torch.bool).index_fill(0, top, True)
    penalised = put_back(chosen, mask)
    logratio = new - old
    penalty = torch.where(penalised, beta * logratio.abs(), 0.0)
    return penalty - logratio.exp() * advantages


def token_covariance(new: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return f32[..., token], each trained token's term of cov(log pi, A); no gradient.

    Source: Cui et al. 2025, arXiv:2505.22617, sec. 4.1.
    """
    new, advantages = torch.broadcast_tensors(new.detach(), advantages)
    new, advantages = new[mask], advantages[mask]
    return put_back((new - new.mean()) * (advantages - advantages.mean()), mask)


def _count(fraction: float, mask: Tensor) -> int:
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be in (0, 1]; got {fraction}")
    return max(1, int(fraction * int(mask.sum())))


def _draw(candidate: Tensor, count: int, seed: int) -> Tensor:
    """Return bool like `candidate`, True at `count` of the places where it is (or at all)."""
    places = candidate.flatten().nonzero().flatten()
    generator = torch.Generator().manual_seed(seed)  # on CPU: the same draw on every device
    order = torch.randperm(len(places), generator=generator)[:count].to(places.device)
    return (
        torch.zeros_like(candidate).flatten().index_fill(0, places[order], True).view_as(candidate)
    )
