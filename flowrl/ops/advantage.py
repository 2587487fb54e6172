"""Advantages of a sample over the others of its prompt: no critic."""

from collections.abc import Sequence

from flowrl.ir.graph import Value
from flowrl.ops.expect import finite_weights, in_interval, one_of, per_token
from flowrl.ops.reduce import token_counts
from flowrl.ops.tensor import Per, apply

SAMPLES = "f32[..., sample] -> f32[..., sample]"


def group_advantage(
    rewards: Value,
    *,
    norm_by_std: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
    nonfinite: str = "raise",
) -> Value:
    """Centre each sample's reward on the mean of its prompt's group.

    Args:
        rewards: f32[prompt, sample], in any reward unit.
        norm_by_std: also divide by the group's standard deviation; off is Dr. GRPO.
        ddof: the deviation divides by n - ddof.
        eps: added to the deviation, in reward units.
        nonfinite: "raise" stops the run at a NaN or infinite reward; "exclude" leaves it out of
            its group and gives it 0. Its tokens should leave the mask as well: `ops.usable`.

    Returns:
        f32[prompt, sample]; unitless if `norm_by_std`. Equal rewards, or one sample, give 0.

    Raises:
        ProgramError: `rewards` isn't f32[..., sample], or an option isn't known.

    Source: Shao et al. 2024, arXiv:2402.03300, sec. 4.1.2; Liu et al. 2025, arXiv:2503.20783.
    """
    in_interval("group_advantage", "[0, 1]", ddof=ddof)
    in_interval("group_advantage", "[0, inf)", eps=eps)
    one_of("group_advantage", "norm_by_std", norm_by_std, (True, False))
    one_of("group_advantage", "nonfinite", nonfinite, ("raise", "exclude"))
    return apply(
        "group_advantages:group_advantage",
        SAMPLES,
        Per.GROUP,
        {"rewards": rewards},
        {"norm_by_std": norm_by_std, "ddof": ddof, "eps": eps, "nonfinite": nonfinite},
    )


def leave_one_out(rewards: Value) -> Value:
    """Subtract from each sample's reward the mean of the others of its prompt.

    Args:
        rewards: f32[prompt, sample].

    Returns:
        f32[prompt, sample], in reward units; one sample gives 0.

    Source: Ahmadian et al. 2024, arXiv:2402.14740, eq. 8.
    """
    return apply("group_advantages:leave_one_out", SAMPLES, Per.GROUP, {"rewards": rewards})


def opo(rewards: Value, mask: Value) -> Value:
    """Subtract from each sample's reward its group's mean, weighted by the samples' lengths.

    Args:
        rewards: f32[prompt, sample].
        mask: bool[prompt, sample, token]; a sample's length is its trained tokens.

    Returns:
        f32[prompt, sample], in reward units. Equal rewards, or one sample, give 0.

    Source: Hao et al. 2025, arXiv:2505.23585.
    """
    args = {"rewards": rewards, "token_counts": token_counts(mask)}
    signature = "f32[..., sample], f32[..., sample] -> f32[..., sample]"
    return apply("group_advantages:opo", signature, Per.GROUP, args)


def gdpo(
    rewards: Value, *, weights: Sequence[float] | None = None, ddof: int = 1, eps: float = 1e-6
) -> Value:
    """Normalise each reward in its group, sum them weighted, and whiten the sums over the batch.

    Args:
        rewards: f32[prompt, sample, reward], from `ops.score` with `names`.
        weights: one a reward; all 1 if None.
        ddof: each variance divides by n - ddof.
        eps: added to each deviation, in the reward's units.

    Returns:
        f32[prompt, sample], unitless.

    Source: Liu et al. 2026, arXiv:2601.05242.
    """
    finite_weights("gdpo", weights)
    in_interval("gdpo", "[0, 1]", ddof=ddof)
    in_interval("gdpo", "[0, inf)", eps=eps)
    return apply(
        "group_advantages:gdpo",
        "f32[..., sample, reward] -> f32[..., sample]",
        Per.BATCH,
        {"rewards": rewards},
        {"weights": weights, "ddof": ddof, "eps": eps},
    )


def reinforce_plus_plus_baseline(
    rewards: Value, mask: Value, *, ddof: int = 1, eps: float = 1e-8
) -> Value:
    """Centre each reward on its group's mean, and whiten over all trained tokens of the batch.

    Args:
        rewards: f32[prompt, sample].
        mask: bool[prompt, sample, token].
        ddof: the variance divides by n - ddof.
        eps: added to the variance, in squared reward units.

    Returns:
        f32[prompt, sample, token], unitless, 0 where `mask` is False.

    Source: Hu et al. 2025, arXiv:2501.03262.
    """
    in_interval("reinforce_plus_plus_baseline", "[0, 1]", ddof=ddof)
    in_interval("reinforce_plus_plus_baseline", "[0, inf)", eps=eps)
    return apply(
        "advantages:reinforce_plus_plus_baseline",
        "f32[..., sample], bool[..., sample, token] -> f32[..., sample, token]",
        Per.BATCH,
        {"rewards": rewards, "mask": mask},
        {"ddof": ddof, "eps": eps},
    )


def optimal_token_baseline(rewards: Value, mask: Value, logprobs: Value, collision: Value) -> Value:
    """Return the reward-to-go less the baseline of its place that makes the variance least.

    Args:
        rewards: f32[prompt, sample, token], such as `ops.token_rewards(scores, mask)`.
        mask: bool[prompt, sample, token].
        logprobs: f32[prompt, sample, token], under the policy that sampled.
        collision: f32[prompt, sample, token], of that policy: `ops.collision(policy, rollouts)`.

    Returns:
        f32[prompt, sample, token], in reward units; 0 at a place that one sample alone reaches.

    Source: Li et al. 2026, arXiv:2602.07078.
    """
    per_token("optimal_token_baseline", "rewards", rewards)
    at_token = "f32[..., sample, token]"
    return apply(
        "token_baseline:optimal_token_baseline",
        f"{at_token}, bool[..., sample, token], {at_token}, {at_token} -> {at_token}",
        Per.GROUP,
        {"rewards": rewards, "mask": mask, "logprobs": logprobs, "collision": collision},
    )
