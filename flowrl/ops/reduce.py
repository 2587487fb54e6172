"""Reductions of token losses to one number, whose divisors span the whole minibatch."""

from flowrl.ir.graph import Value
from flowrl.ops.tensor import Per, apply

TOKENS = "f32[..., token], bool[..., token] -> f32[]"


def token_mean(x: Value, mask: Value) -> Value:
    """Return the mean over all trained tokens.

    Args:
        x: f32[..., token].
        mask: bool[..., token]; what lies elsewhere is inert.

    Returns:
        f32[], sum(x) / number of trained tokens of the whole minibatch; 0 if there is none.

    Source: Yu et al. 2025, arXiv:2503.14476, sec. 3.3 (DAPO's token-level loss).
    """
    return apply("reductions:token_mean", TOKENS, Per.BATCH, {"x": x, "mask": mask}, splits=True)


def sequence_mean(x: Value, mask: Value) -> Value:
    """Return the mean over sequences of their means over tokens.

    Args:
        x: f32[..., token].
        mask: bool[..., token].

    Returns:
        f32[]; sequences without a trained token don't count.

    Source: Shao et al. 2024, arXiv:2402.03300, eq. 3 (GRPO's own reduction).
    """
    return apply("reductions:sequence_mean", TOKENS, Per.BATCH, {"x": x, "mask": mask}, splits=True)


def sequence_sum_mean(x: Value, mask: Value) -> Value:
    """Return the mean over sequences of their sums over tokens.

    Args:
        x: f32[..., token].
        mask: bool[..., token].

    Returns:
        f32[]; sequences without a trained token don't count.
    """
    return apply(
        "reductions:sequence_sum_mean", TOKENS, Per.BATCH, {"x": x, "mask": mask}, splits=True
    )


def count(mask: Value) -> Value:
    """Return how many elements of a bool value are True, as f32[]."""
    return mask.float().sum(mask=mask)


def pass_at(rewards: Value, *, k: int) -> Value:
    """Return the chance that one of `k` samples of a prompt is right, averaged over prompts.

    Args:
        rewards: f32[prompt, sample]; a sample is right if its reward is above 0.5.
        k: at most the samples of a prompt.

    Returns:
        f32[], unbiased: 1 - C(n - c, k) / C(n, k) for c right samples of n.

    Source: Chen et al. 2021, arXiv:2107.03374, eq. 1.
    """
    signature = "bool[..., sample] -> f32[]"
    return apply("metrics:pass_at_k", signature, Per.BATCH, {"correct": rewards > 0.5}, {"k": k})
