"""What to do about samples of another policy than the one being trained."""

from typing import Literal

import torch
from torch import Tensor

from flowrl.functional.ragged import segment, select, spread
from flowrl.functional.reductions import row_mean, row_sum
from flowrl.functional.refusals import require_finite_tokens

LEVELS = ("token", "sequence", "geomean")
MODES = ("truncate", "mask", "geomean_filter_token_truncate")


@torch.no_grad()
def importance_weights(
    train: Tensor,
    rollout: Tensor,
    mask: Tensor,
    *,
    level: Literal["token", "sequence", "geomean"] = "token",
    mode: Literal["truncate", "mask", "geomean_filter_token_truncate"] = "truncate",
    low: float | None = None,
    high: float | None = 2.0,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return importance weights for tokens that an engine sampled and a trainer scores.

    With d = train - rollout, a weight is exp(d) at level "token", exp of the row's sum of d at
    "sequence" and exp of the row's mean at "geomean". Weights are constants in the gradient.

    Args:
        train: f32[..., token], the trainer's log-probabilities for the weights that sampled.
        rollout: f32[..., token], the engine's.
        mask: bool[..., token], True on trained tokens.
        level: what is weighed.
        mode: "truncate" clamps to [low, high]; "mask" gives 0 outside of it;
            "geomean_filter_token_truncate" drops rows whose geometric mean is outside and clamps
            the token weights of the others (level "token" only).
        low: the lower bound; None for none.
        high: the upper bound; None for none.
        lengths: i64[row] if packed.

    Returns:
        weights: f32[..., token], unitless, 0 on masked tokens and dropped ones.
        keep: bool[..., token], the trained tokens that aren't dropped.

    Raises:
        ValueError: a trained token's log-probability isn't finite (SampleRefusedError), or
            options contradict.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
        training" (truncate); Liu et al. 2025, "When speed kills stability" (mask).
    """
    _check_options(level, mode, low, high)
    require_finite_tokens("train log-probabilities", train, mask, lengths)
    require_finite_tokens("rollout log-probabilities", rollout, mask, lengths)
    train, rollout = select(mask, train, rollout)
    gap = train - rollout
    mean = spread(row_mean(gap, mask, lengths=lengths), mask, lengths=lengths)
    if level == "sequence":
        gap = spread(row_sum(gap, mask, lengths=lengths), mask, lengths=lengths)
    elif level == "geomean":
        gap = mean
    weights = gap.exp()
    judged = mean.exp() if mode == "geomean_filter_token_truncate" else weights
    keep = mask if mode == "truncate" else mask & _within(judged, low, high)
    if mode != "mask" and not (low is None and high is None):
        weights = weights.clamp(low, high)
    return select(keep, weights)[0], keep


@torch.no_grad()
def staleness(
    versions: Tensor,
    mask: Tensor | None = None,
    *,
    current: int,
    max_lag: int,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return how many versions behind each row's oldest token is, and whether that will do.

    Args:
        versions: i64[..., token], the version of the weights that sampled the token.
        mask: bool[..., token], which tokens count; all if None.
        current: the version being trained.
        max_lag: the largest lag that is accepted.
        lengths: i64[row] if packed.

    Returns:
        lag: i64[...], in updates; 0 for a row without tokens.
        accept: bool[...].
    """
    counted = versions if mask is None else torch.where(mask, versions, current)
    if lengths is not None:
        oldest = segment(counted.to(torch.float64), lengths, "min")
        oldest = oldest.masked_fill(oldest.isinf(), current)  # a row without tokens
    elif counted.shape[-1]:
        oldest = counted.amin(-1)
    else:
        oldest = counted.new_full(counted.shape[:-1], current)
    lag = current - oldest.to(torch.int64)
    return lag, lag <= max_lag


def _check_options(level: str, mode: str, low: float | None, high: float | None) -> None:
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}; got {level!r}")
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
    if mode == "geomean_filter_token_truncate" and level != "token":
        raise ValueError(f'mode {mode} weighs tokens: level must be "token"; got {level!r}')
    if mode != "truncate" and low is None and high is None:
        raise ValueError(f"mode {mode} drops nothing without a bound: give low or high")
    if low is not None and high is not None and low > high:
        raise ValueError(f"low must not be above high; got {low=} {high=}")


def _within(weights: Tensor, low: float | None, high: float | None) -> Tensor:
    return (weights >= (low or 0.0)) & (weights <= (torch.inf if high is None else high))
