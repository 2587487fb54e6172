"""Elementwise arithmetic, and reductions over rows or over all."""

from collections.abc import Callable

import torch
from torch import Tensor


def _number(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def add(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b."""
    return _number(a) + _number(b)


def sub(a: Tensor, b: Tensor) -> Tensor:
    """Return a - b."""
    return _number(a) - _number(b)


def mul(a: Tensor, b: Tensor) -> Tensor:
    """Return a * b."""
    return _number(a) * _number(b)


def div(a: Tensor, b: Tensor) -> Tensor:
    """Return a / b."""
    return _number(a) / _number(b)


def pow(a: Tensor, b: Tensor) -> Tensor:
    """Return a to the power of b."""
    return _number(a) ** _number(b)


def minimum(a: Tensor, b: Tensor) -> Tensor:
    """Return the smaller of each pair."""
    return torch.minimum(*torch.broadcast_tensors(_number(a), _number(b).to(_number(a))))


def maximum(a: Tensor, b: Tensor) -> Tensor:
    """Return the greater of each pair."""
    return torch.maximum(*torch.broadcast_tensors(_number(a), _number(b).to(_number(a))))


def less(a: Tensor, b: Tensor) -> Tensor:
    """Return a < b."""
    return a < b


def less_equal(a: Tensor, b: Tensor) -> Tensor:
    """Return a <= b."""
    return a <= b


def greater(a: Tensor, b: Tensor) -> Tensor:
    """Return a > b."""
    return a > b


def greater_equal(a: Tensor, b: Tensor) -> Tensor:
    """Return a >= b."""
    return a >= b


def equal(a: Tensor, b: Tensor) -> Tensor:
    """Return a == b, element by element."""
    return a == b


def not_equal(a: Tensor, b: Tensor) -> Tensor:
    """Return a != b, element by element."""
    return a != b


def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """Return a and b."""
    return a & b


def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """Return a or b."""
    return a | b


def logical_not(a: Tensor) -> Tensor:
    """Return not a."""
    return ~a


def neg(a: Tensor) -> Tensor:
    """Return -a."""
    return -_number(a)


def exp(a: Tensor) -> Tensor:
    """Return e to the power of a."""
    return _number(a).exp()


def log(a: Tensor) -> Tensor:
    """Return the natural logarithm of a."""
    return _number(a).log()


def abs(a: Tensor) -> Tensor:
    """Return the magnitude of a."""
    return _number(a).abs()


def float(a: Tensor) -> Tensor:
    """Return a as a number; False is 0 and True is 1."""
    return _number(a)


def detach(a: Tensor) -> Tensor:
    """Return a as a constant of the gradient."""
    return a.detach()


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return a where the condition holds, else b."""
    return torch.where(condition, _number(a), _number(b).to(_number(a)))


def clip(x: Tensor, *, low: "float | None" = None, high: "float | None" = None) -> Tensor:  # type: ignore[valid-type]
    """Return x held to [low, high]."""
    return x if low is None and high is None else x.clamp(low, high)


def _std(x: Tensor) -> Tensor:
    """Return the deviation; of equal elements 0, not what the rounding of their mean leaves."""
    return x[:0].sum() if len(x) < 2 or bool(x.max() == x.min()) else x.std()


ALL: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": torch.sum,
    "mean": lambda x: x.mean() if len(x) else x.sum(),
    "std": _std,
    "min": lambda x: x.min() if len(x) else x.sum(),
    "max": lambda x: x.max() if len(x) else x.sum(),
}


def _reduce(
    kind: str, x: Tensor, mask: Tensor | None, over: str | None, lengths: Tensor | None
) -> Tensor:
    x = _number(x)
    if over is None or lengths is None:
        return ALL[kind](x.reshape(-1) if mask is None else x[mask])
    rows = x.split(lengths.tolist())
    masks = mask.split(lengths.tolist()) if mask is not None else [None] * len(rows)
    kept = [row if m is None else row[m] for row, m in zip(rows, masks, strict=True)]
    return torch.stack([ALL[kind](row) for row in kept]) if kept else x[:0]


def sum(
    x: Tensor,
    mask: Tensor | None = None,
    *,
    over: str | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return the sum of x where `mask` holds: of each row if `over` names an axis, or of all."""
    return _reduce("sum", x, mask, over, lengths)


def mean(
    x: Tensor,
    mask: Tensor | None = None,
    *,
    over: str | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return the mean of x where `mask` holds, likewise; of nothing it is 0."""
    return _reduce("mean", x, mask, over, lengths)


def std(
    x: Tensor,
    mask: Tensor | None = None,
    *,
    over: str | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return the deviation of x (n - 1) where `mask` holds, likewise; of equal ones it is 0."""
    return _reduce("std", x, mask, over, lengths)


def min(
    x: Tensor,
    mask: Tensor | None = None,
    *,
    over: str | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return the least element of x where `mask` holds, likewise; of nothing it is 0."""
    return _reduce("min", x, mask, over, lengths)


def max(
    x: Tensor,
    mask: Tensor | None = None,
    *,
    over: str | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return the greatest element of x where `mask` holds, likewise; of nothing it is 0."""
    return _reduce("max", x, mask, over, lengths)


def mean_total(x: Tensor, mask: Tensor | None = None, *, over: str | None = None) -> Tensor:
    """Return the part of `mean` that adds up over rows: the sum."""
    return _reduce("sum", x, mask, None, None)


def mean_divisor(x: Tensor, *, over: str | None = None) -> Tensor:
    """Return what `mean_total` is divided by, at least 1: the elements of x, or of a mask."""
    count = int(x.sum()) if x.dtype == torch.bool else x.numel()
    return torch.tensor(count or 1, dtype=torch.get_default_dtype(), device=x.device)


def sum_total(x: Tensor, mask: Tensor | None = None, *, over: str | None = None) -> Tensor:
    """Return the part of `sum` that adds up over rows: all of it."""
    return _reduce("sum", x, mask, None, None)


def sum_divisor(x: Tensor, *, over: str | None = None) -> Tensor:
    """Return 1."""
    return torch.ones((), dtype=torch.get_default_dtype(), device=x.device)
