"""Evaluate tensor ops: broadcast packed values, call the function, wrap what it returns."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Node, Value
from flowrl.ir.types import Axis, DType, TensorType, Type
from flowrl.ops.tensor import Per, TensorOp

Lengths = tuple[Tensor, ...]


def evaluate(op: TensorOp, args: Sequence[Ragged | Tensor], node: Node) -> list[Ragged | Tensor]:
    """Return the results of a tensor op on packed values.

    Raises:
        EngineError: a user's function raised, or returned another number of elements.
    """
    return call(op, function_of(op), args, node, [value.type for value in node.results])


def call(
    op: TensorOp,
    function: Callable[..., Any],
    args: Sequence[Ragged | Tensor],
    node: Node,
    types: Sequence[Type],
) -> list[Ragged | Tensor]:
    """Return `function` of the arguments, as values of the result types."""
    expected = op.signature.broadcast(tuple(value.type for value in node.args))
    lengths = max((lengths_of(arg) for arg in args), key=len, default=())
    flat = [_broadcast(arg, axes, lengths) for arg, axes in zip(args, expected, strict=True)]
    results = _invoke(op, function, flat, expected, lengths, node)
    return [_wrap(op, x, type, lengths, node) for x, type in zip(results, types, strict=True)]


@cache
def builtin(function: str) -> Callable[..., Any]:
    """Return the function of `flowrl.functional` that is called `module:name`."""
    module, name = function.split(":")
    found: Callable[..., Any] = getattr(import_module(f"flowrl.functional.{module}"), name)
    return found


def function_of(op: TensorOp) -> Callable[..., Any]:
    """Return the function that a tensor op names."""
    return op.user or builtin(op.function)


def axes_of(value: Value) -> tuple[Axis, ...]:
    """Return the axes of a tensor value."""
    assert isinstance(value.type, TensorType)
    return value.type.axes


def lengths_of(value: Ragged | Tensor) -> Lengths:
    """Return the lengths of a packed value; none for a scalar."""
    return value.lengths if isinstance(value, Ragged) else ()


def spread(values: Tensor, level: int, to: int, lengths: Lengths) -> Tensor:
    """Repeat the elements of nesting `level` for each of their elements of level `to`."""
    for depth in range(level, max(level, to)):
        values = values.repeat_interleave(lengths[depth], dim=0)
    return values


def parents(lengths: Lengths, level: int) -> Tensor:
    """Return the number of the first-axis element that each element of `level` lies in."""
    count = len(lengths[0]) if lengths else 0
    return spread(torch.arange(count), 0, level, lengths)


def _broadcast(arg: Ragged | Tensor, axes: tuple[Axis, ...], lengths: Lengths) -> Tensor:
    """Return the elements of an argument, one for each element of `axes`."""
    if isinstance(arg, Ragged):
        return spread(arg.values, len(arg.lengths), len(axes) - 1, lengths)
    return arg.expand(_size(len(axes), lengths)) if axes else arg


def _size(depth: int, lengths: Lengths) -> int:
    """Return the number of elements of a value with `depth` axes."""
    if depth == 1:
        return len(lengths[0]) if lengths else 1
    return int(lengths[depth - 2].sum())


def _invoke(
    op: TensorOp,
    function: Callable[..., Any],
    flat: list[Tensor],
    axes: Sequence[tuple[Axis, ...]],
    lengths: Lengths,
    node: Node,
) -> list[Tensor]:
    accepted = signature(function).parameters
    options: dict[str, Any] = {name: v for name, v in op.params if name in accepted}
    if "lengths" in accepted:
        options["lengths"] = lengths[-1] if lengths else None
    if "groups" in accepted and lengths:
        options["groups"] = parents(lengths, 1)
    whole = op.user is None or op.per in (Per.TOKEN, Per.BATCH)
    if whole or "lengths" in accepted or "groups" in accepted:
        result = _guarded(op, function, flat, options, node)
        return list(result) if isinstance(result, tuple) else [result]
    return _one_by_one(op, function, flat, options, axes, lengths, node)


def _one_by_one(
    op: TensorOp,
    function: Callable[..., Any],
    flat: list[Tensor],
    options: dict[str, Any],
    axes: Sequence[tuple[Axis, ...]],
    lengths: Lengths,
    node: Node,
) -> list[Tensor]:
    level = len(lengths) - 1 if op.per is Per.SAMPLE else 0
    columns = [_units(x, len(a) - 1, level, lengths) for x, a in zip(flat, axes, strict=True)]
    rows = []
    for unit in zip(*columns, strict=True):
        result = _guarded(op, function, list(unit), options, node)
        parts = result if isinstance(result, tuple) else (result,)
        rows.append([torch.as_tensor(part).reshape(-1) for part in parts])
    return [torch.cat(column) for column in zip(*rows, strict=True)] or [flat[0][:0]]


def _units(x: Tensor, level: int, unit: int, lengths: Lengths) -> list[Any]:
    """Split the elements of `level` into those of each element of level `unit`."""
    if level <= unit:
        return list(x)
    parts = list(x.split(lengths[level - 1].tolist()))
    for depth in range(level - 2, unit - 1, -1):
        counts = iter(lengths[depth].tolist())
        pieces = iter(parts)
        parts = [[next(pieces) for _ in range(n)] for n in counts]
    return parts


def _guarded(
    op: TensorOp, function: Callable[..., Any], args: list[Any], options: dict[str, Any], node: Node
) -> Any:
    if op.user is None:
        return function(*args, **options)
    try:
        return function(*args, **options)
    except Exception as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in args if isinstance(x, Tensor))
        raise EngineError(
            f"{op.name}: the function raised {type(error).__name__}: {error}",
            where=node.loc.excerpt(),
            hint=f"it was called with tensors of shapes {shapes}, per={op.per.value!r}",
        ) from error


DTYPES = {DType.I32: torch.int64, DType.BOOL: torch.bool}


def _wrap(op: TensorOp, x: Any, type: Type, lengths: Lengths, node: Node) -> Ragged | Tensor:
    assert isinstance(type, TensorType)
    x = torch.as_tensor(x)
    if op.user is not None:
        x = x.to(DTYPES.get(type.dtype, torch.get_default_dtype()))
    if not type.axes:
        return x.reshape(()) if x.numel() == 1 else _refuse(op, x, 1, type, node)
    expected = _size(len(type.axes), lengths) if lengths else x.numel()
    if x.numel() != expected:
        return _refuse(op, x, expected, type, node)
    return Ragged(x.reshape(-1), lengths[: len(type.axes) - 1])


def _refuse(op: TensorOp, x: Tensor, expected: int, type: Type, node: Node) -> Ragged:
    raise EngineError(
        f"{op.name}: the function must return {expected} elements for {type}; "
        f"got a tensor of shape {tuple(x.shape)}",
        where=node.loc.excerpt(),
        hint=f"with per={op.per.value!r} it returns an element for each of its result type",
    )
