"""Advantages: from rewards to how much better than expected each token was."""

from flowrl.ir.graph import Value
from flowrl.ops.tensor import Per, apply, apply_many


def group_advantage(rewards: Value, *, norm_by_std: bool = True, eps: float = 1e-6) -> Value:
    """Centre each sample's reward on the mean of its prompt's group.

    Args:
        rewards: f32[prompt, sample], in any reward unit.
        norm_by_std: also divide by the group's standard deviation (n - 1); off is Dr. GRPO.
        eps: added to the deviation, in reward units.

    Returns:
        f32[prompt, sample]; unitless if `norm_by_std`. Equal rewards, or one sample, give 0.

    Raises:
        ProgramError: `rewards` isn't f32[..., sample].

    Source: Shao et al. 2024, arXiv:2402.03300, sec. 4.1.2; Liu et al. 2025, arXiv:2503.20783.
    """
    return apply(
        "group_advantages:group_advantage",
        "f32[..., sample] -> f32[..., sample]",
        Per.GROUP,
        {"rewards": rewards},
        {"norm_by_std": norm_by_std, "eps": eps},
    )


def leave_one_out(rewards: Value) -> Value:
    """Subtract from each sample's reward the mean of the others of its prompt.

    Args:
        rewards: f32[prompt, sample].

    Returns:
        f32[prompt, sample], in reward units; one sample gives 0.

    Source: Ahmadian et al. 2024, arXiv:2402.14740, eq. 8.
    """
    signature = "f32[..., sample] -> f32[..., sample]"
    return apply("group_advantages:leave_one_out", signature, Per.GROUP, {"rewards": rewards})


def token_rewards(scores: Value, mask: Value, penalty: Value | None = None) -> Value:
    """Put each sample's score on its last trained token, less a penalty on every token.

    Args:
        scores: f32[prompt, sample].
        mask: bool[prompt, sample, token].
        penalty: f32[prompt, sample, token], such as `kl_coef * (logprobs - anchor)`.

    Returns:
        f32[prompt, sample, token], in reward units, 0 where `mask` is False.

    Source: Ouyang et al. 2022, arXiv:2203.02155, eq. 2.
    """
    signature = "f32[...], bool[..., token]"
    args = {"scores": scores, "mask": mask}
    if penalty is not None:
        signature, args = f"{signature}, f32[..., token]", {**args, "penalty": penalty}
    signature = f"{signature} -> f32[..., token]"
    return apply("advantages:token_rewards", signature, Per.SAMPLE, args)


def gae(
    rewards: Value, values: Value, mask: Value, *, gamma: float = 1.0, lam: float = 1.0
) -> tuple[Value, Value]:
    """Estimate advantages by an exponentially weighted sum of TD errors.

    Args:
        rewards: f32[prompt, sample, token], received for emitting each token.
        values: f32[prompt, sample, token], of the state before each token, in reward units.
        mask: bool[prompt, sample, token]; masked tokens are skipped without cost.
        gamma: discount, in [0, 1].
        lam: decay, in [0, 1]; 0 gives the TD error, 1 the return minus the value.

    Returns:
        advantages and returns, both f32[prompt, sample, token], 0 where `mask` is False.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    advantages, returns = apply_many(
        "advantages:gae",
        "f32[..., token], f32[..., token], bool[..., token] -> f32[..., token], f32[..., token]",
        Per.SAMPLE,
        {"rewards": rewards, "values": values, "mask": mask},
        {"gamma": gamma, "lam": lam},
        outputs=("advantages", "returns"),
    )
    return advantages, returns


def whiten(x: Value, mask: Value, *, mode: str = "standard", eps: float = 1e-8) -> Value:
    """Shift and scale to mean 0 and variance 1 over all trained tokens of the batch.

    Args:
        x: f32[..., token].
        mask: bool[..., token].
        mode: `standard`, `keep_mean` (add the mean back) or `scale_only`.
        eps: added to the variance.

    Returns:
        f32[..., token], 0 where `mask` is False.

    Source: Schulman et al. 2017, arXiv:1707.06347 (common practice; not in the paper).
    """
    return apply(
        "whitening:whiten",
        "f32[..., token], bool[..., token] -> f32[..., token]",
        Per.BATCH,
        {"x": x, "mask": mask},
        {"mode": mode, "eps": eps},
    )
