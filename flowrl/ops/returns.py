"""Rewards of tokens, and what each token earned: returns, and advantages over a critic."""

from flowrl.ir.graph import Value
from flowrl.ops.expect import in_interval, one_of, per_token, refuse
from flowrl.ops.tensor import Per, apply, apply_many

REWARDS = "f32[..., token], bool[..., token]"


def token_rewards(scores: Value, mask: Value, kl_penalty: Value | None = None) -> Value:
    """Put each sample's score on its last trained token, less a penalty on every token.

    Args:
        scores: f32[prompt, sample]; one that isn't finite stops the run and is told by its row.
        mask: bool[prompt, sample, token].
        kl_penalty: f32[prompt, sample, token], such as `kl_coef * (logprobs - anchor)`.

    Returns:
        f32[prompt, sample, token], in reward units, 0 where `mask` is False.

    Source: Ouyang et al. 2022, arXiv:2203.02155, eq. 2.
    """
    if isinstance(scores, Value) and scores.axes and scores.axes[-1].name == "token":
        refuse(
            "token_rewards",
            f"`scores` must be f32[...], one a sample; got {scores.type}",
            "rewards that tokens have already need no place: hand them to `ops.gae` as they are",
        )
    signature, args = "f32[...], bool[..., token]", {"scores": scores, "mask": mask}
    if kl_penalty is not None:
        signature, args = f"{signature}, f32[..., token]", {**args, "kl_penalty": kl_penalty}
    return apply(
        "advantages:token_rewards",
        f"{signature} -> f32[..., token]",
        Per.SAMPLE,
        args,
        optional=kl_penalty is not None,
    )


def discounted_returns(rewards: Value, mask: Value, *, gamma: float = 1.0) -> Value:
    """Return what each token and those after it earn: G_k = r_k + gamma G_{k+1}.

    Args:
        rewards: f32[prompt, sample, token], received for emitting each token.
        mask: bool[prompt, sample, token]; masked tokens are skipped without cost.
        gamma: discount, in [0, 1].

    Returns:
        f32[prompt, sample, token], in reward units, 0 where `mask` is False.

    Source: Sutton and Barto 2018, "Reinforcement Learning", eq. 3.8.
    """
    per_token("discounted_returns", "rewards", rewards)
    in_interval("discounted_returns", "[0, 1]", gamma=gamma)
    return apply(
        "advantages:discounted_returns",
        f"{REWARDS} -> f32[..., token]",
        Per.SAMPLE,
        {"rewards": rewards, "mask": mask},
        {"gamma": gamma},
    )


def gae(
    rewards: Value,
    values: Value,
    mask: Value,
    bootstrap: Value | None = None,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> tuple[Value, Value]:
    """Estimate advantages by an exponentially weighted sum of TD errors.

    Args:
        rewards: f32[prompt, sample, token], received for emitting each token.
        values: f32[prompt, sample, token], of the state before each token, in reward units.
        mask: bool[prompt, sample, token]; masked tokens are skipped without cost.
        bootstrap: f32[prompt, sample], the value after the last token, where a sample was cut
            off; 0 where it ended: `ops.bootstrap_values(critic, rollouts)`. None is 0.
        gamma: discount, in [0, 1].
        lam: decay, in [0, 1]; 0 gives the TD error, 1 the return minus the value.

    Returns:
        advantages and returns, both f32[prompt, sample, token], 0 where `mask` is False.

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16.
    """
    per_token("gae", "rewards", rewards)
    in_interval("gae", "[0, 1]", gamma=gamma, lam=lam)
    signature = "f32[..., token], f32[..., token], bool[..., token]"
    args = {"rewards": rewards, "values": values, "mask": mask}
    if bootstrap is not None:
        signature, args = f"{signature}, f32[...]", {**args, "bootstrap": bootstrap}
    advantages, returns = apply_many(
        "advantages:gae",
        f"{signature} -> f32[..., token], f32[..., token]",
        Per.SAMPLE,
        args,
        {"gamma": gamma, "lam": lam},
        outputs=("advantages", "returns"),
    )
    return advantages, returns


def remax(rewards: Value, mask: Value, baseline: Value) -> Value:
    """Return the reward-to-go less the reward of the greedy answer to the same prompt.

    Args:
        rewards: f32[prompt, sample, token], such as `ops.token_rewards(scores, mask)`.
        mask: bool[prompt, sample, token].
        baseline: f32[prompt] or f32[prompt, sample], the greedy answer's reward, joined by row:
            `ops.align(greedy_rewards, to=rollouts).mean(over="sample")`.

    Returns:
        f32[prompt, sample, token], in reward units, 0 where `mask` is False.

    Source: Li et al. 2024, arXiv:2310.10505, algorithm 1.
    """
    per_token("remax", "rewards", rewards)
    args = {"rewards": rewards, "mask": mask, "baseline": baseline}
    return apply("advantages:remax", f"{REWARDS}, f32[...] -> f32[..., token]", Per.SAMPLE, args)


def reinforce_plus_plus(
    rewards: Value, mask: Value, *, gamma: float = 1.0, ddof: int = 1, eps: float = 1e-8
) -> Value:
    """Return discounted returns, whitened over all trained tokens of the batch.

    Args:
        rewards: f32[prompt, sample, token], with the KL penalty if there is one.
        mask: bool[prompt, sample, token].
        gamma: discount, in [0, 1].
        ddof: the variance divides by n - ddof.
        eps: added to the variance, in squared reward units.

    Returns:
        f32[prompt, sample, token], unitless, 0 where `mask` is False.

    Source: Hu et al. 2025, arXiv:2501.03262.
    """
    per_token("reinforce_plus_plus", "rewards", rewards)
    in_interval("reinforce_plus_plus", "[0, 1]", gamma=gamma, ddof=ddof)
    in_interval("reinforce_plus_plus", "[0, inf)", eps=eps)
    return apply(
        "advantages:reinforce_plus_plus",
        f"{REWARDS} -> f32[..., token]",
        Per.BATCH,
        {"rewards": rewards, "mask": mask},
        {"gamma": gamma, "ddof": ddof, "eps": eps},
    )


def whiten(
    values: Value, mask: Value, *, mode: str = "standard", ddof: int = 1, eps: float = 1e-8
) -> Value:
    """Shift and scale to mean 0 and variance 1 over all trained tokens of the batch.

    Args:
        values: f32[..., token].
        mask: bool[..., token].
        mode: "standard", "keep_mean" (add the mean back) or "scale_only" (subtract nothing).
        ddof: the variance divides by n - ddof.
        eps: added to the variance, in squared units of `values`.

    Returns:
        f32[..., token], 0 where `mask` is False.

    Source: Schulman et al. 2017, arXiv:1707.06347 (common practice; not in the paper).
    """
    one_of("whiten", "mode", mode, ("standard", "keep_mean", "scale_only"))
    in_interval("whiten", "[0, 1]", ddof=ddof)
    in_interval("whiten", "[0, inf)", eps=eps)
    return apply(
        "whitening:whiten",
        f"{REWARDS} -> f32[..., token]",
        Per.BATCH,
        {"values": values, "mask": mask},
        {"mode": mode, "ddof": ddof, "eps": eps},
    )
