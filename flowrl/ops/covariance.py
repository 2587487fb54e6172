"""Losses that keep entropy up by holding back the few tokens that would lower it most."""

from flowrl.ir.graph import Value
from flowrl.ir.trace import builder_of
from flowrl.ops.correction import policy_gradient
from flowrl.ops.expect import in_interval, ordered
from flowrl.ops.tensor import Per, Rule

TOKENS = "f32[..., token]"
QUADRUPLE = f"{TOKENS}, {TOKENS}, {TOKENS}, bool[..., token] -> {TOKENS}"


def clip_cov(
    new: Value,
    old: Value,
    advantages: Value,
    mask: Value,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    fraction: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
) -> Value:
    """Return the PPO loss of each token, without gradient at a few of high covariance.

    Args:
        new: f32[prompt, sample, token], log-probabilities under the policy being trained.
        old: f32[prompt, sample, token], under the version that sampled.
        advantages: f32[prompt, sample, token] or f32[prompt, sample].
        mask: bool[prompt, sample, token].
        clip: as in `clipped_surrogate`.
        clip_high: likewise.
        fraction: share of the trained tokens to detach, in (0, 1]; at least one is, if any may be.
        low: least covariance of a token that may be chosen.
        high: greatest covariance of one.

    Returns:
        f32[prompt, sample, token]. The choice looks at the whole minibatch: two passes. It is
        drawn anew in each step, from the run's seed.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 10-11.
    """
    in_interval("clip_cov", "(0, 1]", clip=clip, fraction=fraction)
    in_interval("clip_cov", "(0, inf)", clip_high=clip_high)
    between = "they are the least and the greatest covariance of a token that may be chosen"
    ordered("clip_cov", low, high, between)
    number = builder_of([new], "clip_cov").number("draw")
    bounds = {"clip": clip, "clip_high": clip_high, "low": low, "high": high}
    return policy_gradient(
        "covariance:clip_cov",
        QUADRUPLE,
        Per.BATCH,
        {"new": new, "old": old, "advantages": advantages, "mask": mask},
        {**bounds, "fraction": fraction, "seed": number},
        rule=Rule.SAME_MODEL,
    )


def kl_cov(
    new: Value,
    old: Value,
    advantages: Value,
    mask: Value,
    *,
    fraction: float = 2e-3,
    beta: float = 1.0,
) -> Value:
    """Return -r A, unclipped, plus beta |log r| at the tokens of the highest covariance.

    Args:
        new: f32[prompt, sample, token], log-probabilities under the policy being trained.
        old: f32[prompt, sample, token], under the version that sampled.
        advantages: f32[prompt, sample, token] or f32[prompt, sample].
        mask: bool[prompt, sample, token].
        fraction: share of the trained tokens that are penalised, in (0, 1]; at least one is.
        beta: coefficient of the penalty.

    Returns:
        f32[prompt, sample, token]. The choice looks at the whole minibatch: two passes.

    Source: Cui et al. 2025, arXiv:2505.22617, sec. 4.2.
    """
    in_interval("kl_cov", "(0, 1]", fraction=fraction)
    in_interval("kl_cov", "[0, inf)", beta=beta)
    return policy_gradient(
        "covariance:kl_cov",
        QUADRUPLE,
        Per.BATCH,
        {"new": new, "old": old, "advantages": advantages, "mask": mask},
        {"fraction": fraction, "beta": beta},
        rule=Rule.SAME_MODEL,
    )
