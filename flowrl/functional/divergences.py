"""How far two policies are apart, and how sharp one is."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from flowrl.functional.logprobs import log_softmax
from flowrl.functional.ragged import select

_ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda gap: gap,
    "k2": lambda gap: gap.square() / 2,
    "k3": lambda gap: (-gap).expm1() + gap,
}


def kl(
    logprobs: Tensor,
    reference: Tensor,
    old: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    estimator: Literal["k1", "k2", "k3"] = "k3",
    gradient: Literal["direct", "unbiased"] = "direct",
) -> Tensor:
    """Estimate KL(policy || reference) from each sampled token; nothing is clamped.

    With d = logprobs - reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d. All but k2 are
    unbiased as values. As losses only k2's slope is that of the KL: k1's is 0 in expectation and
    k3's is that of KL(reference || policy).

    Args:
        logprobs: f32[..., token], natural logs under the policy that is trained.
        reference: f32[..., token], under the reference, at the same temperature.
        old: f32[..., token], under the policy that sampled, where it is another one.
        mask: bool[..., token]; optional, since a reduction selects as well.
        estimator: which value.
        gradient: "direct" differentiates the value; "unbiased" keeps it and gives it the slope
            w d, with w = exp(logprobs - old) held constant (1 without `old`).

    Returns:
        f32[..., token], in nats.

    Raises:
        ValueError: no such estimator or gradient, or `old` given where it has no use.

    Source: Schulman 2020, "Approximating KL divergence"; Shao et al. 2024, arXiv:2402.03300,
        eq. 4.
    """
    if estimator not in _ESTIMATORS:
        raise ValueError(f"estimator must be k1, k2 or k3; got {estimator!r}")
    if gradient not in ("direct", "unbiased"):
        raise ValueError(f'gradient must be "direct" or "unbiased"; got {gradient!r}')
    if old is not None and gradient == "direct":
        raise ValueError('old logprobs weigh the slope of gradient="unbiased"; got "direct"')
    logprobs, reference = select(mask, logprobs, reference)
    gap = logprobs - reference
    value = _ESTIMATORS[estimator](gap)
    if gradient == "direct":
        return value
    slope = gap.detach()
    if old is not None:
        slope = slope * (logprobs - select(mask, old)[0]).detach().exp()
    return value.detach() + slope * (logprobs - logprobs.detach())


def kl_of_logits(logits: Tensor, reference: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return KL(policy || reference) exactly, summed over the vocabulary.

    Args:
        logits: f32[..., vocab] of the policy.
        reference: f32[..., vocab] of the reference; swap the two for the forward KL.
        temperature: divides both, > 0.

    Returns:
        f32[...], in nats.
    """
    p, q = log_softmax(logits, temperature), log_softmax(reference, temperature)
    never = p.isneginf()
    return (p.exp() * torch.where(never, 0.0, p - q)).sum(-1)


def entropy_of_logits(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Return the entropy of softmax(logits / temperature).

    Args:
        logits: f32[..., vocab]; -inf where a token cannot be drawn.
        temperature: > 0.

    Returns:
        f32[...], in nats.
    """
    p = log_softmax(logits, temperature)
    return -(p.exp() * torch.where(p.isneginf(), 0.0, p)).sum(-1)


def adaptive_kl(
    coefficient: Tensor,
    divergence: Tensor,
    *,
    target: float,
    horizon: float,
    samples: int | None = None,
) -> Tensor:
    """Return the KL coefficient for the next step: larger if the KL was above its target.

    coefficient * (1 + clip(KL / target - 1, -0.2, 0.2) * samples / horizon), KL being the mean
    over samples. No sample changes nothing.

    Args:
        coefficient: f32[], the present one; it is training state, so keep it in a carry.
        divergence: f32[...], each sample's KL, per sequence or per token as `target` is; or
            f32[], their mean, with `samples`.
        target: the KL wanted, in nats; > 0.
        horizon: samples over which to correct; > 0.
        samples: how many samples were measured; the elements of `divergence` if None.

    Raises:
        ValueError: `target` or `horizon` isn't above 0, `horizon` not above a fifth of the
            samples, or the KL is NaN.

    Source: Ziegler et al. 2019, arXiv:1909.08593.
    """
    for name, value in (("target", target), ("horizon", horizon)):
        if not value > 0:
            raise ValueError(f"{name} must be above 0; got {value}")
    count = divergence.numel() if samples is None else samples
    if not count < 5 * horizon:
        raise ValueError(
            f"horizon must be above a fifth of a step's samples, {count / 5:g}, or one step may "
            f"take the coefficient to 0 or below; got {horizon:g}"
        )
    mean = divergence.sum() / max(divergence.numel(), 1)
    if bool(mean.isnan()):
        raise ValueError("the KL must be a number; the mean of divergence is nan")
    error = (mean / target - 1).clamp(-0.2, 0.2)
    return coefficient * (1 + error * count / horizon)
