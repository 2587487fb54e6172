"""Reductions of token losses to one number, whose divisors span the whole minibatch."""

from flowrl.ir.graph import Value
from flowrl.ops.expect import at_least_one, in_interval, one_of, refuse
from flowrl.ops.tensor import Per, apply

TOKENS = "f32[..., token], bool[..., token] -> f32[]"
MODES = {
    "token-mean": "token_mean",
    "seq-mean-token-mean": "sequence_mean",
    "seq-mean-token-sum": "sequence_sum_mean",
    "seq-mean-token-sum-norm": "horizon_mean",
}
"""The reduction that each mode of `aggregate` is."""


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


def sequence_mean(x: Value, mask: Value, *, denominator: str = "active") -> Value:
    """Return the mean over sequences of their means over tokens.

    Args:
        x: f32[..., token].
        mask: bool[..., token].
        denominator: "active" counts the sequences with a trained token, "all" every one.

    Returns:
        f32[], over the sequences of the whole minibatch.

    Source: Shao et al. 2024, arXiv:2402.03300, eq. 3 (GRPO's own reduction).
    """
    return _over_rows("sequence_mean", x, mask, denominator)


def sequence_sum_mean(x: Value, mask: Value, *, denominator: str = "active") -> Value:
    """Return the mean over sequences of their sums over tokens.

    Args:
        x: f32[..., token].
        mask: bool[..., token].
        denominator: "active" counts the sequences with a trained token, "all" every one.

    Returns:
        f32[], over the sequences of the whole minibatch.

    Source: Ahmadian et al. 2024, arXiv:2402.14740, sec. 3 (a completion is one action).
    """
    return _over_rows("sequence_sum_mean", x, mask, denominator)


def horizon_mean(x: Value, mask: Value, *, horizon: float, denominator: str = "active") -> Value:
    """Return the mean over sequences of their sums over tokens, over a constant horizon.

    Args:
        x: f32[..., token].
        mask: bool[..., token].
        horizon: tokens, a constant of the run such as the limit of a sample's length; above 0.
        denominator: "active" counts the sequences with a trained token, "all" every one.

    Returns:
        f32[], over the sequences of the whole minibatch.

    Source: Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783, sec. 3.2.
    """
    limit = "the limit of a sample's length serves, in tokens"
    in_interval("horizon_mean", "(0, inf)", hint=limit, horizon=horizon)
    return _over_rows("horizon_mean", x, mask, denominator, horizon=horizon)


def aggregate(
    x: Value,
    mask: Value,
    *,
    mode: str = "token-mean",
    horizon: float | None = None,
    denominator: str = "active",
) -> Value:
    """Return the mean that `mode` names as papers do, for programs with a choice of it.

    Args:
        x: f32[..., token].
        mask: bool[..., token].
        mode: "token-mean", "seq-mean-token-mean", "seq-mean-token-sum" or
            "seq-mean-token-sum-norm": `token_mean`, `sequence_mean`, `sequence_sum_mean` or
            `horizon_mean`.
        horizon: tokens; for "seq-mean-token-sum-norm", and only for it.
        denominator: which sequences are counted, where they are.

    Returns:
        f32[].

    Raises:
        ProgramError: there is no such mode, or a horizon is missing or without use.
    """
    one_of("aggregate", "mode", mode, tuple(MODES))
    one_of("aggregate", "denominator", denominator, ("active", "all"))
    if (horizon is None) == (mode == "seq-mean-token-sum-norm"):
        refuse(
            "aggregate",
            "`horizon` belongs to mode='seq-mean-token-sum-norm', and to no other; "
            f"got {horizon} with mode={mode!r}",
            "give both or neither",
        )
    if horizon is not None:
        return horizon_mean(x, mask, horizon=horizon, denominator=denominator)
    if mode == "token-mean":
        return token_mean(x, mask)
    return _over_rows(MODES[mode], x, mask, denominator)


def token_counts(mask: Value) -> Value:
    """Return how many trained tokens each sample has.

    Args:
        mask: bool[prompt, sample, token].

    Returns:
        f32[prompt, sample].
    """
    return mask.float().sum(over="token", mask=mask)


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
    at_least_one("pass_at", "k", k, "k counts samples of a prompt")
    signature = "bool[..., sample] -> f32[]"
    return apply("metrics:pass_at_k", signature, Per.BATCH, {"correct": rewards > 0.5}, {"k": k})


def _over_rows(name: str, x: Value, mask: Value, denominator: str, **options: float) -> Value:
    one_of(name, "denominator", denominator, ("active", "all"))
    return apply(
        f"reductions:{name}",
        TOKENS,
        Per.BATCH,
        {"x": x, "mask": mask},
        {**options, "denominator": denominator},
        splits=True,
    )
