"""Mean and variance over the trained tokens of the global batch.

The batch is whole here: ranks gather their values first, so that the result doesn't depend on
how many there are. The mean of each rank's own statistics is another number.
"""

from typing import Literal

import torch
from torch import Tensor

from flowrl.functional.ragged import put_back


def moments(values: Tensor, mask: Tensor, *, ddof: int = 1) -> tuple[Tensor, Tensor]:
    """Return f32[], f32[]: mean and variance over the trained tokens of the whole batch.

    The variance is that of deviations from the mean; E[x^2] - E[x]^2 cancels in float32.

    Raises:
        ValueError: there are no more than `ddof` trained tokens, or the variance isn't finite.
    """
    kept = values[mask]
    if len(kept) <= ddof:
        raise ValueError(
            f"a variance with ddof={ddof} needs more than {ddof} trained tokens; got {len(kept)}"
        )
    mean = kept.mean().clamp(kept.min(), kept.max())  # rounding may put it outside of equal values
    var = _centred(kept, mean).square().sum() / (len(kept) - ddof)
    if not var.isfinite():
        raise ValueError(
            f"the variance of trained tokens is {var.item()}: they are from {kept.min().item():g} "
            f"to {kept.max().item():g}"
        )
    return mean, var


def whiten(
    values: Tensor,
    mask: Tensor,
    *,
    mode: Literal["standard", "keep_mean", "scale_only"] = "standard",
    ddof: int = 1,
    eps: float = 1e-8,
) -> Tensor:
    """Give the trained tokens of the whole batch variance 1, and mean 0 unless told otherwise.

    Args:
        values: f32[..., token], or packed.
        mask: bool, the same form: True on trained tokens.
        mode: "standard" (x - mean) / sqrt(var + eps); "keep_mean" adds the mean back;
            "scale_only" x / sqrt(var + eps).
        ddof: the variance divides by n - ddof.
        eps: added to the variance, in squared units of `values`.

    Returns:
        The form of `values`, unitless.

    Raises:
        ValueError: no such mode, no more than `ddof` trained tokens, or nothing to scale by.
    """
    if mode not in ("standard", "keep_mean", "scale_only"):
        raise ValueError(f"mode must be standard, keep_mean or scale_only; got {mode!r}")
    if not values.numel():  # a step without rows; rows without a trained token are an error
        return values
    mean, var = moments(values, mask, ddof=ddof)
    kept, scale = values[mask], (var + eps).sqrt()
    if scale == 0:
        if mode == "scale_only":
            raise ValueError(f"equal values have no scale without eps; all are {mean.item():g}")
        scale = torch.ones_like(scale)
    white = (kept if mode == "scale_only" else _centred(kept, mean)) / scale
    return put_back(white + mean if mode == "keep_mean" else white, mask)


def _centred(x: Tensor, mean: Tensor) -> Tensor:
    """Subtract the mean, and what its rounding to the grid of large numbers has left of it."""
    rest = x - mean
    return rest - rest.mean()
