"""Losses and penalties: per token, unreduced, to be minimised."""

from flowrl.ir.graph import Value
from flowrl.ops.tensor import Per, Rule, apply

PAIR = "f32[..., token], f32[..., token] -> f32[..., token]"
TRIPLE = "f32[..., token], f32[..., token], f32[..., token] -> f32[..., token]"


def clipped_surrogate(
    new: Value,
    old: Value,
    advantages: Value,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    dual_clip: float | None = None,
) -> Value:
    """Return the negated PPO objective of each token.

    Args:
        new: f32[prompt, sample, token], log-probabilities under the policy being trained.
        old: f32[prompt, sample, token], under the version that sampled.
        advantages: f32[prompt, sample, token], or f32[prompt, sample] for all its tokens.
        clip: epsilon > 0; the ratio new / old is held to [1 - clip, 1 + clip].
        clip_high: the upper epsilon, if it is another (DAPO's clip-higher).
        dual_clip: c > 1; where the advantage is negative the loss is at most c * |advantage|.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Raises:
        ProgramError: the log-probabilities are of other models, temperatures, filters or tokens.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; Yu et al. 2025, arXiv:2503.14476,
    eq. 8; Ye et al. 2020, arXiv:1912.09729, eq. 5.
    """
    return apply(
        "surrogate:clipped_surrogate",
        TRIPLE,
        Per.TOKEN,
        {"new": new, "old": old, "advantages": advantages},
        {"clip": clip, "clip_high": clip_high, "dual_clip": dual_clip},
        rule=Rule.SAME_MODEL,
    )


def clipped_value(
    values: Value, old_values: Value, returns: Value, *, clip: float | None = 0.2
) -> Value:
    """Return half the squared error of each value, the worse of clipped and not.

    Args:
        values: f32[prompt, sample, token], of the critic being trained.
        old_values: f32[prompt, sample, token], before this batch's updates.
        returns: f32[prompt, sample, token], the targets, in reward units.
        clip: how far a value may move from the old one and still count; None is any.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Source: Schulman et al. 2016, arXiv:1506.02438 (the clip is common practice).
    """
    args = {"values": values, "old_values": old_values, "returns": returns}
    return apply("losses:clipped_value", TRIPLE, Per.TOKEN, args, {"clip": clip})


def kl(
    logprobs: Value, reference: Value, *, estimator: str = "k3", gradient: str = "direct"
) -> Value:
    """Estimate KL(policy || reference) from each token that the policy sampled.

    Args:
        logprobs: f32[prompt, sample, token], under the policy.
        reference: f32[prompt, sample, token], under the other model.
        estimator: "k1" d, "k2" d^2/2 or "k3" exp(-d) - 1 + d, with d = logprobs - reference.
        gradient: "direct" differentiates the estimator; "unbiased" has the gradient of k2.

    Returns:
        f32[prompt, sample, token], in nats.

    Raises:
        ProgramError: the temperatures, filters or tokens differ.

    Source: Schulman 2020, "Approximating KL divergence".
    """
    return apply(
        "divergences:kl",
        PAIR,
        Per.TOKEN,
        {"logprobs": logprobs, "reference": reference},
        {"estimator": estimator, "gradient": gradient},
        rule=Rule.SAME_DISTRIBUTION,
    )


def clip_cov(
    new: Value,
    old: Value,
    advantages: Value,
    mask: Value,
    *,
    clip: float = 0.2,
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
        fraction: share of the trained tokens to detach.
        low: least covariance of a token that may be chosen.
        high: greatest covariance of one.

    Returns:
        f32[prompt, sample, token]. The choice looks at the whole minibatch: two passes.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 10-11.
    """
    return apply(
        "covariance:clip_cov",
        "f32[..., token], f32[..., token], f32[..., token], bool[..., token] -> f32[..., token]",
        Per.BATCH,
        {"new": new, "old": old, "advantages": advantages, "mask": mask},
        {"clip": clip, "fraction": fraction, "low": low, "high": high},
        rule=Rule.SAME_MODEL,
    )


def dpo_loss(ratios: Value, *, beta: float = 0.1) -> Value:
    """Return the direct preference loss of each pair.

    Args:
        ratios: f32[prompt, sample], log-probability of each answer under the policy less that
            under the reference, summed over tokens; two samples a prompt, the chosen one first.
        beta: weight of the KL constraint behind the loss.

    Returns:
        f32[prompt], -log sigmoid(beta * (chosen - rejected)).

    Raises:
        ProgramError: `ratios` isn't f32[..., sample].

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7.
    """
    signature = "f32[..., sample] -> f32[...]"
    return apply("preferences:dpo_loss", signature, Per.GROUP, {"ratios": ratios}, {"beta": beta})
