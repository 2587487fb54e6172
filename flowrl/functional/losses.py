"""Losses of the policy and of the critic: one number a token, to be minimised, not reduced.

`mask` is optional throughout: a reduction over trained tokens selects as well, but only selecting
the inputs, as a mask given here does, keeps a NaN in a masked position out of the gradient.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from flowrl.functional.ragged import select
from flowrl.functional.reductions import token_mean
from flowrl.functional.surrogate import selected


def cispo(
    new: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor | None = None,
    *,
    clip: float | None = None,
    clip_high: float = 4.0,
) -> Tensor:
    """Return -clip(r) A log pi with the clipped ratio held constant: no token loses its gradient.

    Args:
        new: f32[..., token], log-probabilities under the policy that is trained.
        old: f32[..., token], under the policy that sampled.
        advantages: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        clip: how far the ratio may fall below 1; None for no bound.
        clip_high: how far it may rise above 1.

    Returns:
        f32[..., token].

    Source: MiniMax 2025 (MiniMax-M1), arXiv:2506.13585, eq. 4-5.
    """
    new, old, advantages = selected(mask, new, old, advantages)
    ratio = (new - old).detach().exp()
    low = None if clip is None else 1 - clip
    return -ratio.clamp(low, 1 + clip_high) * advantages * new


def reinforce(new: Tensor, advantages: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return f32[..., token], -A log pi.

    Source: Williams 1992, "Simple statistical gradient-following algorithms".
    """
    new, advantages = select(mask, *torch.broadcast_tensors(new, advantages))
    return -advantages * new


def clipped_value(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor | None = None,
    *,
    clip: float | None = 0.2,
) -> Tensor:
    """Return half the critic's squared error, the larger of the free and the clipped one.

    Args:
        values: f32[..., token], the critic's, in reward units.
        old_values: f32[..., token], those at sampling time.
        returns: f32[..., token], what to predict.
        mask: bool[..., token], True on trained tokens.
        clip: how far a value may move from the old one, in reward units; None for no clip.

    Returns:
        f32[..., token], in squared reward units.

    Source: Schulman et al. 2017 (code of PPO); Engstrom et al. 2020, arXiv:2005.12729, sec. 3.
    """
    values, old_values, returns = select(mask, values, old_values, returns)
    free, held = _value_errors(values, old_values, returns, clip)
    return torch.where(held > free, held, free) / 2


def value_clip_fraction(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float = 0.2
) -> Tensor:
    """Return f32[], the share of trained tokens whose clipped error is the larger one."""
    values, old_values, returns = select(mask, values.detach(), old_values, returns)
    free, held = _value_errors(values, old_values, returns, clip)
    return token_mean((held > free).to(values.dtype), mask)


def _value_errors(
    values: Tensor, old_values: Tensor, returns: Tensor, clip: float | None
) -> tuple[Tensor, Tensor]:
    """Return the squared error of the values, and of the values held near the old ones."""
    free = (values - returns).square()
    if clip is None:
        return free, free
    held = torch.clamp(values, old_values - clip, old_values + clip)
    return free, (held - returns).square()


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -y log sigmoid(x) - (1 - y) log sigmoid(-x) of each logit x and its label y.

    Args:
        logits: f32[...].
        labels: f32[...], in [0, 1]: the probability that the logit is to give; no gradient.

    Returns:
        f32[...], in nats.

    Raises:
        ValueError: a label isn't in [0, 1].

    Source: Good 1952, "Rational decisions".
    """
    labels = labels.detach()
    bad = labels[~((labels >= 0) & (labels <= 1))]
    if len(bad):
        raise ValueError(f"labels must be in [0, 1]; got {bad[0].item()}")
    return binary_cross_entropy_with_logits(logits, labels, reduction="none")
