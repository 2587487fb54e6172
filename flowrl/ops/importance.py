"""What to do about samples of another policy than the one being trained."""

from flowrl.ir.graph import Value
from flowrl.ops.expect import in_interval, one_of, ordered, refuse
from flowrl.ops.tensor import Per, Rule, apply_many

LEVELS = ("token", "sequence", "geomean")
MODES = ("truncate", "mask", "geomean_filter_token_truncate")


def importance_weights(
    train: Value,
    rollout: Value,
    mask: Value,
    *,
    level: str = "token",
    mode: str = "truncate",
    low: float | None = None,
    high: float | None = 2.0,
) -> tuple[Value, Value]:
    """Return importance weights for tokens that an engine sampled and a trainer scores.

    They are constants of the gradient. Multiply a loss by them, and reduce it over
    `rollouts.mask`, so that rejected tokens count in the denominator, or over `keep`.

    Args:
        train: f32[prompt, sample, token], the trainer's log-probabilities for the version that
            sampled: `ops.logprobs(policy, rollouts)`.
        rollout: f32[prompt, sample, token], the engine's: `rollouts.logprobs`.
        mask: bool[prompt, sample, token].
        level: with d = train - rollout, "token" weighs by exp(d), "sequence" by exp of its sum
            over the sample, "geomean" by exp of its mean.
        mode: "truncate" clamps to [low, high]; "mask" gives 0 outside of it;
            "geomean_filter_token_truncate" drops samples whose geometric mean is outside, and
            clamps the token weights of the others (level "token" only).
        low: the lower bound; None for none.
        high: the upper bound; None for none.

    Returns:
        weights, f32[prompt, sample, token], 0 where masked or dropped; and keep,
        bool[prompt, sample, token], the trained tokens that aren't dropped.

    Raises:
        ProgramError: options contradict, or the log-probabilities are of other models,
            temperatures, filters or tokens.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training" (truncate); Liu et al. 2025, "When speed kills stability" (mask).
    """
    check_weights("importance_weights", level, mode, low, high)
    tokens = "f32[..., token]"
    weights, keep = apply_many(
        "importance:importance_weights",
        f"{tokens}, {tokens}, bool[..., token] -> {tokens}, bool[..., token]",
        Per.SAMPLE,
        {"train": train, "rollout": rollout, "mask": mask},
        {"level": level, "mode": mode, "low": low, "high": high},
        rule=Rule.SAME_MODEL,
        outputs=("weights", "keep"),
    )
    return weights, keep


def check_weights(op: str, level: str, mode: str, low: float | None, high: float | None) -> None:
    """Check the options of `importance_weights`.

    Raises:
        ProgramError: one is out of range, or they contradict each other.
    """
    one_of(op, "level", level, LEVELS)
    one_of(op, "mode", mode, MODES)
    in_interval(op, "[0, inf)", low=low, high=high)
    if mode == "geomean_filter_token_truncate" and level != "token":
        refuse(
            op,
            f"mode={mode!r} weighs tokens; got level={level!r}",
            "leave `level` out for 'token'",
        )
    if mode != "truncate" and low is None and high is None:
        refuse(op, f"mode={mode!r} needs `low` or `high`; got neither", "without it drops nothing")
    ordered(op, low, high, "both bound the weight")
