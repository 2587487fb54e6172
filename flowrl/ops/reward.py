"""Rewards before they become advantages: combined, penalised, judged."""

from collections.abc import Sequence

from flowrl.ir.graph import Value
from flowrl.ir.trace import builder_of
from flowrl.ops.expect import at_least_one, finite_weights, in_interval, one_of, refuse
from flowrl.ops.tensor import Per, apply


def combine_rewards(rewards: Value, *, weights: Sequence[float] | None = None) -> Value:
    """Return the weighted sum of the rewards of each sample that are there.

    Args:
        rewards: f32[prompt, sample, reward], from `ops.score` with `names`; NaN is "no value".
        weights: one a reward, in the order of `names`; all 1 if None.

    Returns:
        f32[prompt, sample]; NaN where no reward has a value (see `ops.usable`).
    """
    finite_weights("combine_rewards", weights)
    signature = "f32[..., reward] -> f32[...]"
    args = {"rewards": rewards}
    return apply("rewards:combine_rewards", signature, Per.SAMPLE, args, {"weights": weights})


def overlong_penalty(
    token_counts: Value, *, max_len: int, cache_len: int, factor: float = 1.0
) -> Value:
    """Return what to add to the reward of a sample that gets near the limit of its length.

    Args:
        token_counts: f32[prompt, sample], `ops.token_counts(rollouts.mask)`.
        max_len: the length at which the penalty is whole, in tokens.
        cache_len: over how many tokens before that it grows; in [1, max_len].
        factor: the whole penalty, in reward units.

    Returns:
        f32[prompt, sample]: 0 up to max_len - cache_len tokens, then falling to -factor.

    Raises:
        ProgramError: `cache_len` is above `max_len`.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, eq. 13.
    """
    at_least_one("overlong_penalty", "max_len", max_len, "max_len counts tokens")
    at_least_one("overlong_penalty", "cache_len", cache_len, "cache_len counts tokens")
    in_interval("overlong_penalty", "[0, inf)", factor=factor)
    if cache_len > max_len:
        refuse(
            "overlong_penalty",
            f"`cache_len` must be in [1, max_len]; got {cache_len} with max_len={max_len}",
            "the penalty grows over the last cache_len of max_len tokens",
        )
    return apply(
        "lengths:overlong_penalty",
        "number[...] -> f32[...]",
        Per.TOKEN,
        {"token_counts": token_counts},
        {"max_len": max_len, "cache_len": cache_len, "factor": factor},
    )


def has_signal(rewards: Value) -> Value:
    """Return whether a prompt's rewards are all finite and not all the same.

    For `ops.sample_until` and `ops.select`: a group without a signal has advantages of 0.

    Args:
        rewards: f32[prompt, sample].

    Returns:
        bool[prompt]; a group of one has none.

    Source: dynamic sampling, Yu et al. 2025, arXiv:2503.14476, sec. 3.2.
    """
    signature = "f32[..., sample] -> bool[...]"
    return apply("filters:has_signal", signature, Per.GROUP, {"rewards": rewards})


def policy_filter(rewards: Value, *, keep: str = "best_random") -> Value:
    """Return which samples of each prompt PF-PPO learns from, by the rank of their rewards.

    Rewards at both ends of a reward model's range are the ones to rely on. For `ops.select`.

    Args:
        rewards: f32[prompt, sample].
        keep: "best_random" keeps the best sample and one of the others, drawn evenly, anew in
            each step, from the run's seed; "best_worst" the best and the worst; "best" one.

    Returns:
        bool[prompt, sample]. Of equal rewards the first is the best, and the next the worst.

    Source: Zhang et al. 2024, arXiv:2409.06957, sec. 4.
    """
    one_of("policy_filter", "keep", keep, ("best_random", "best_worst", "best"))
    options: dict[str, object] = {"keep": keep}
    if keep == "best_random":
        options["seed"] = builder_of([rewards], "policy_filter").number("draw")
    signature, args = "f32[..., sample] -> bool[..., sample]", {"rewards": rewards}
    return apply("filters:policy_filter", signature, Per.BATCH, args, options)


def usable(rewards: Value) -> Value:
    """Return where a reward is a finite number, as bool of the same axes."""
    return apply("rewards:usable", "f32[...] -> bool[...]", Per.TOKEN, {"rewards": rewards})
