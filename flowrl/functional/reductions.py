"""From losses of tokens to one number, over rows and over the batch.

A mean over the batch also comes in two pieces, `<name>_total` and `<name>_divisor`, with
`<name> == <name>_total / <name>_divisor`. A total is a sum over rows, so it splits over
microbatches and ranks; a divisor is read off the mask alone, once, over the whole minibatch.
With nothing trained a divisor is 1 and its total 0, so that the mean and its gradient are 0.

With N rows, m the mask and L the loss of a token:

    token_mean         sum(m L) / sum(m)
    sequence_mean      1/N sum_i (sum_t m L / sum_t m)
    sequence_sum_mean  1/N sum_i sum_t m L
    horizon_mean       1/(N horizon) sum_i sum_t m L

`denominator` says which rows N counts: "active", those with a trained token, or "all".
"""

from typing import Literal

import torch
from torch import Tensor

from flowrl.functional.ragged import row_counts, segment, select

Denominator = Literal["active", "all"]


def row_sum(x: Tensor, mask: Tensor, *, lengths: Tensor | None = None) -> Tensor:
    """Return f32[...], the sum of each row's trained tokens.

    Args:
        x: f32[..., token], in any unit.
        mask: bool[..., token], True on trained tokens.
        lengths: i64[row] if packed.
    """
    (kept,) = select(mask, x)
    return kept.sum(-1) if lengths is None else segment(kept, lengths)


def row_mean(x: Tensor, mask: Tensor, *, lengths: Tensor | None = None) -> Tensor:
    """Return f32[...], the mean of each row's trained tokens; 0 if there is none."""
    return row_sum(x, mask, lengths=lengths) / row_counts(mask, lengths=lengths).clamp(min=1)


def token_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return f32[], the mean over all trained tokens: a long row weighs more than a short one.

    Source: Yu et al. 2025 (DAPO), arXiv:2503.14476, sec. 3.3.
    """
    return token_mean_total(x, mask) / token_mean_divisor(mask)


def token_mean_total(x: Tensor, mask: Tensor) -> Tensor:
    """Return f32[], the numerator of `token_mean`."""
    return select(mask, x)[0].sum()


def token_mean_divisor(mask: Tensor) -> Tensor:
    """Return i64[], the number of trained tokens, at least 1."""
    return mask.sum().clamp(min=1)


def sequence_mean(
    x: Tensor,
    mask: Tensor,
    *,
    denominator: Denominator = "active",
    lengths: Tensor | None = None,
) -> Tensor:
    """Return f32[], the mean over rows of the row's mean: each row weighs the same.

    Source: Shao et al. 2024 (GRPO), arXiv:2402.03300, eq. 3.
    """
    divisor = sequence_mean_divisor(mask, denominator=denominator, lengths=lengths)
    return sequence_mean_total(x, mask, lengths=lengths) / divisor


def sequence_mean_total(x: Tensor, mask: Tensor, *, lengths: Tensor | None = None) -> Tensor:
    """Return f32[], the numerator of `sequence_mean`: the sum over rows of the row's mean."""
    return row_mean(x, mask, lengths=lengths).sum()


def sequence_mean_divisor(
    mask: Tensor, *, denominator: Denominator = "active", lengths: Tensor | None = None
) -> Tensor:
    """Return i64[], the number of rows that count, at least 1.

    Raises:
        ValueError: `denominator` isn't "active" or "all".
    """
    counts = row_counts(mask, lengths=lengths)
    if denominator == "active":
        return (counts > 0).sum().clamp(min=1)
    if denominator == "all":
        return torch.tensor(max(counts.numel(), 1), device=mask.device)
    raise ValueError(f'denominator must be "active" or "all"; got {denominator!r}')


def sequence_sum_mean(
    x: Tensor,
    mask: Tensor,
    *,
    denominator: Denominator = "active",
    lengths: Tensor | None = None,
) -> Tensor:
    """Return f32[], the mean over rows of the row's sum."""
    divisor = sequence_sum_mean_divisor(mask, denominator=denominator, lengths=lengths)
    return sequence_sum_mean_total(x, mask) / divisor


sequence_sum_mean_total = token_mean_total
sequence_sum_mean_divisor = sequence_mean_divisor


def horizon_mean(
    x: Tensor,
    mask: Tensor,
    *,
    horizon: float,
    denominator: Denominator = "active",
    lengths: Tensor | None = None,
) -> Tensor:
    """Return f32[], the mean over rows of the row's sum over a constant horizon.

    Args:
        x: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        horizon: tokens, a constant of the run such as the response limit; > 0.
        denominator: which rows are counted.
        lengths: i64[row] if packed.

    Source: Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783, sec. 3.2.
    """
    divisor = horizon_mean_divisor(mask, horizon=horizon, denominator=denominator, lengths=lengths)
    return horizon_mean_total(x, mask) / divisor


horizon_mean_total = token_mean_total


def horizon_mean_divisor(
    mask: Tensor,
    *,
    horizon: float,
    denominator: Denominator = "active",
    lengths: Tensor | None = None,
) -> Tensor:
    """Return f32[], the number of rows that count times `horizon`.

    Raises:
        ValueError: `horizon` isn't above 0.
    """
    if not horizon > 0:
        raise ValueError(f"horizon must be above 0 tokens; got {horizon}")
    return horizon * sequence_mean_divisor(mask, denominator=denominator, lengths=lengths)


MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


def aggregate(
    x: Tensor,
    mask: Tensor,
    *,
    mode: str = "token-mean",
    horizon: float | None = None,
    denominator: Denominator = "active",
    lengths: Tensor | None = None,
) -> Tensor:
    """Return f32[], the mean that `mode` names as papers and run files do.

    Args:
        x: f32[..., token].
        mask: bool[..., token], True on trained tokens.
        mode: "token-mean", "seq-mean-token-mean", "seq-mean-token-sum" or
            "seq-mean-token-sum-norm".
        horizon: tokens; for "seq-mean-token-sum-norm", and only for it.
        denominator: which rows are counted where rows are.
        lengths: i64[row] if packed.

    Raises:
        ValueError: no such mode, or a horizon that is missing or without use.
    """
    divisor = aggregate_divisor(
        mask, mode=mode, horizon=horizon, denominator=denominator, lengths=lengths
    )
    return aggregate_total(x, mask, mode=mode, lengths=lengths) / divisor


def aggregate_total(x: Tensor, mask: Tensor, *, mode: str, lengths: Tensor | None = None) -> Tensor:
    """Return f32[], the numerator of `aggregate`."""
    if mode == "seq-mean-token-mean":
        return sequence_mean_total(x, mask, lengths=lengths)
    return token_mean_total(x, mask)


def aggregate_divisor(
    mask: Tensor,
    *,
    mode: str = "token-mean",
    horizon: float | None = None,
    denominator: Denominator = "active",
    lengths: Tensor | None = None,
) -> Tensor:
    """Return [], the divisor of `aggregate`; raises what `aggregate` raises."""
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
    if (horizon is None) == (mode == "seq-mean-token-sum-norm"):
        raise ValueError(
            f"horizon belongs to mode seq-mean-token-sum-norm; got {horizon=} with mode {mode!r}"
        )
    if mode == "token-mean":
        return token_mean_divisor(mask)
    if horizon is None:
        return sequence_mean_divisor(mask, denominator=denominator, lengths=lengths)
    return horizon_mean_divisor(mask, horizon=horizon, denominator=denominator, lengths=lengths)
