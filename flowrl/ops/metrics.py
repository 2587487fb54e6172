"""Metrics that practitioners watch, each over all samples and tokens of the batch.

`update` measures by itself what its forward pass shows (`flowrl.ops.watch`): the gradient's norm,
clip fractions, ratios, entropy, KLs, the gap to the engine. These measure the rest:
`return policy, stats | ops.watch_rewards(rewards) | ops.watch_lengths(rollouts)`.
"""

from flowrl.ir.graph import Value
from flowrl.ir.records import Rollouts
from flowrl.ops.divergence import kl
from flowrl.ops.expect import expect
from flowrl.ops.reduce import token_counts, token_mean
from flowrl.ops.reward import usable
from flowrl.ops.tensor import Per, Rule, apply, apply_many

TOKENS = "f32[..., token]"
QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}


def watch_rewards(rewards: Value, *, name: str = "reward") -> dict[str, Value]:
    """Return how rewards are spread, and the share of groups that teach nothing.

    Args:
        rewards: f32[prompt, sample]; NaN and infinite ones are left out.
        name: what the metrics' names begin with.

    Returns:
        `<name>_mean`, `_std` and the quantiles `_p10`, `_p50`, `_p90` over samples, in reward
        units; `<name>_zero_variance`, the share of prompts without `has_signal`.
    """
    signature = "f32[...] -> " + ", ".join(["f32[]"] * len(QUANTILES))
    points, names = tuple(QUANTILES.values()), tuple(QUANTILES)
    args = {"x": rewards}
    quantiles = apply_many(
        "metrics:quantiles", signature, Per.BATCH, args, {"at": points}, outputs=names
    )
    there = usable(rewards)
    found = {"mean": rewards.mean(mask=there), "std": rewards.std(mask=there)}
    found |= dict(zip(QUANTILES, quantiles, strict=True))
    found["zero_variance"] = apply(
        "metrics:zero_variance_share", "f32[..., sample] -> f32[]", Per.BATCH, {"rewards": rewards}
    )
    return {f"{name}_{key}": value for key, value in found.items()}


def watch_lengths(rollouts: Rollouts) -> dict[str, Value]:
    """Return how long samples are, and how many were cut off.

    Returns:
        `length_mean`, `length_min`, `length_max`, in trained tokens a sample;
        `truncated_fraction`, the share of samples that the token limit ended.
    """
    expect("watch_lengths", "rollouts", rollouts, Rollouts)
    lengths = token_counts(rollouts.mask)
    return {
        "length_mean": lengths.mean(),
        "length_min": lengths.min(),
        "length_max": lengths.max(),
        "truncated_fraction": rollouts.truncated.float().mean(),
    }


def watch_values(values: Value, returns: Value, mask: Value) -> dict[str, Value]:
    """Return how much of the returns a critic foresaw.

    Args:
        values: f32[prompt, sample, token], before the critic's update.
        returns: f32[prompt, sample, token].
        mask: bool[prompt, sample, token].

    Returns:
        `value_mean`, `return_mean`, in reward units; `explained_variance`: 1 is a perfect
        critic, 0 one that says the mean.
    """
    args = {"values": values, "returns": returns, "mask": mask}
    signature = f"{TOKENS}, {TOKENS}, bool[..., token] -> f32[]"
    return {
        "value_mean": token_mean(values, mask),
        "return_mean": token_mean(returns, mask),
        "explained_variance": apply("metrics:explained_variance", signature, Per.BATCH, args),
    }


def watch_weights(weights: Value, keep: Value, mask: Value) -> dict[str, Value]:
    """Return how unequal importance weights are.

    Args:
        weights: f32[prompt, sample, token], of `ops.importance_weights`.
        keep: bool[prompt, sample, token], of the same.
        mask: bool[prompt, sample, token].

    Returns:
        `weight_mean`, `weight_max` over trained tokens; `kept_fraction`, the share of them that
        isn't dropped; `effective_sample_size`, (sum w)^2 / (n sum w^2), 1 if all weigh the same.
    """
    args = {"weights": weights, "mask": mask}
    signature = f"{TOKENS}, bool[..., token] -> f32[]"
    size = apply("metrics:effective_sample_size", signature, Per.BATCH, args)
    return {
        "weight_mean": token_mean(weights, mask),
        "weight_max": weights.max(mask=mask),
        "kept_fraction": token_mean(keep.float(), mask),
        "effective_sample_size": size,
    }


def watch_kl(logprobs: Value, reference: Value, mask: Value) -> dict[str, Value]:
    """Return how far the policy is from a reference, where the loss has no KL that says so.

    Args:
        logprobs: f32[prompt, sample, token], under the policy that sampled.
        reference: f32[prompt, sample, token], under the reference.
        mask: bool[prompt, sample, token].

    Returns:
        `kl_token`, the mean of k3 over trained tokens; `kl_sequence`, the mean over samples of
        the sum of k1 over their tokens; both in nats.
    """
    sums = (logprobs - reference).sum(over="token", mask=mask)
    return {"kl_token": token_mean(kl(logprobs, reference), mask), "kl_sequence": sums.mean()}


def watch_gap(train: Value, rollout: Value, mask: Value) -> dict[str, Value]:
    """Return how far the trainer's and the engine's log-probabilities are apart.

    Args:
        train: f32[prompt, sample, token], the trainer's, of the version that sampled.
        rollout: f32[prompt, sample, token], the engine's.
        mask: bool[prompt, sample, token].

    Returns:
        `logprob_gap_mean`, `logprob_gap_max` over trained tokens, in nats.
    """
    names = ("logprob_gap_mean", "logprob_gap_max")
    values = apply_many(
        "metrics:logprob_gap",
        f"{TOKENS}, {TOKENS}, bool[..., token] -> f32[], f32[]",
        Per.BATCH,
        {"train": train, "rollout": rollout, "mask": mask},
        rule=Rule.SAME_MODEL,
        outputs=names,
    )
    return dict(zip(names, values, strict=True))
