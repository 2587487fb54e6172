"""Surrogates of the policy's improvement: per token, unreduced, to be minimised."""

from flowrl.ir.graph import Value
from flowrl.ops.correction import policy_gradient
from flowrl.ops.expect import in_interval
from flowrl.ops.tensor import Per, Rule, apply

TOKENS = "f32[..., token]"
TRIPLE = f"{TOKENS}, {TOKENS}, {TOKENS} -> {TOKENS}"


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
        clip: epsilon, in (0, 1]; the ratio new / old is held to [1 - clip, 1 + clip].
        clip_high: the upper epsilon, if it is another (DAPO's clip-higher).
        dual_clip: c > 1; where the advantage is negative the loss is at most c * |advantage|.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Raises:
        ProgramError: the log-probabilities are of other models, temperatures, filters or tokens,
            or an option is out of range.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7; Yu et al. 2025, arXiv:2503.14476,
    eq. 8; Ye et al. 2020, arXiv:1912.09729, eq. 5.
    """
    _check_clips("clipped_surrogate", clip, clip_high)
    off = "leave it out, or take 3.0"
    in_interval("clipped_surrogate", "(1, inf)", hint=off, dual_clip=dual_clip)
    return policy_gradient(
        "surrogate:clipped_surrogate",
        TRIPLE,
        Per.TOKEN,
        {"new": new, "old": old, "advantages": advantages},
        {"clip": clip, "clip_high": clip_high, "dual_clip": dual_clip},
        rule=Rule.SAME_MODEL,
    )


def sequence_surrogate(
    new: Value,
    old: Value,
    advantages: Value,
    mask: Value,
    *,
    clip: float = 3e-4,
    clip_high: float | None = 4e-4,
) -> Value:
    """Return GSPO's negated objective: one clipped ratio a sequence, at each of its tokens.

    Reduce it with `ops.sequence_mean`, which gives back the sequence's own number.

    Args:
        new: f32[prompt, sample, token], log-probabilities under the policy being trained.
        old: f32[prompt, sample, token], under the version that sampled.
        advantages: f32[prompt, sample], or f32[prompt, sample, token], whose mean is taken.
        mask: bool[prompt, sample, token].
        clip: how far the ratio of a sequence, a geometric mean, may fall below 1; in (0, 1].
        clip_high: how far it may rise above 1; `clip` if None.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Source: Zheng et al. 2025, arXiv:2507.18071, eq. 5-7.
    """
    _check_clips("sequence_surrogate", clip, clip_high)
    return policy_gradient(
        "surrogate:sequence_surrogate",
        f"{TOKENS}, {TOKENS}, {TOKENS}, bool[..., token] -> {TOKENS}",
        Per.SAMPLE,
        {"new": new, "old": old, "advantages": advantages, "mask": mask},
        {"clip": clip, "clip_high": clip_high},
        rule=Rule.SAME_MODEL,
    )


def cispo(
    new: Value,
    old: Value,
    advantages: Value,
    *,
    clip: float | None = None,
    clip_high: float = 4.0,
) -> Value:
    """Return -clip(r) A log pi with the clipped ratio held constant: no token loses its gradient.

    Args:
        new: f32[prompt, sample, token], log-probabilities under the policy being trained.
        old: f32[prompt, sample, token], under the version that sampled.
        advantages: f32[prompt, sample, token], or f32[prompt, sample] for all its tokens.
        clip: how far the ratio may fall below 1, in (0, 1]; None for no bound.
        clip_high: how far it may rise above 1.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Source: MiniMax 2025 (MiniMax-M1), arXiv:2506.13585, eq. 4-5.
    """
    _check_clips("cispo", clip, clip_high)
    return policy_gradient(
        "losses:cispo",
        TRIPLE,
        Per.TOKEN,
        {"new": new, "old": old, "advantages": advantages},
        {"clip": clip, "clip_high": clip_high},
        rule=Rule.SAME_MODEL,
    )


def decoupled(
    new: Value,
    proximal: Value,
    behaviour: Value,
    advantages: Value,
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    weight_cap: float | None = None,
) -> Value:
    """Return PPO's loss around a proximal policy, weighted for the policy that sampled.

    Args:
        new: f32[prompt, sample, token], log-probabilities under the policy being trained.
        proximal: f32[prompt, sample, token], under the version that the step may not leave:
            `ops.logprobs(policy, rollouts)` before the update.
        behaviour: f32[prompt, sample, token], under the (older) version that sampled.
        advantages: f32[prompt, sample, token], or f32[prompt, sample] for all its tokens.
        clip: how far new / proximal may fall below 1; in (0, 1].
        clip_high: how far it may rise above 1; `clip` if None.
        weight_cap: the weight proximal / behaviour isn't above it; None for no cap.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Source: Hilton et al. 2022, arXiv:2110.00641; Fu et al. 2025 (AReaL), arXiv:2505.24298.
    """
    _check_clips("decoupled", clip, clip_high)
    in_interval("decoupled", "(0, inf)", weight_cap=weight_cap)
    args = {"new": new, "proximal": proximal, "behaviour": behaviour, "advantages": advantages}
    return apply(
        "surrogate:decoupled",
        f"{TOKENS}, {TOKENS}, {TOKENS}, {TOKENS} -> {TOKENS}",
        Per.TOKEN,
        args,
        {"clip": clip, "clip_high": clip_high, "weight_cap": weight_cap},
        rule=Rule.SAME_MODEL,
        compared=3,
    )


def reinforce(new: Value, advantages: Value) -> Value:
    """Return -A log pi of each token: the policy gradient itself, for data of this version.

    Args:
        new: f32[prompt, sample, token], log-probabilities under the policy being trained.
        advantages: f32[prompt, sample, token], or f32[prompt, sample] for all its tokens.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Source: Williams 1992, "Simple statistical gradient-following algorithms".
    """
    args = {"new": new, "advantages": advantages}
    return policy_gradient("losses:reinforce", f"{TOKENS}, {TOKENS} -> {TOKENS}", Per.TOKEN, args)


def _check_clips(op: str, clip: float | None, clip_high: float | None) -> None:
    in_interval(op, "(0, 1]", clip=clip)
    in_interval(op, "(0, inf)", clip_high=clip_high)
