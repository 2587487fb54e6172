"""Evaluate tensor ops: broadcast packed values, call the function, wrap what it returns."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

import attrs
import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Node, Value
from flowrl.ir.types import Axis, DType, TensorType, Type
from flowrl.ops.tensor import Per, TensorOp

Lengths = tuple[Tensor, ...]


@attrs.frozen(eq=False)
class Form:
    """How the elements of an op's deepest argument are nested.

    Attributes:
        first: elements of the first axis; 1 if all arguments are scalars.
        lengths: elements inside each of those, and so on.
    """

    first: int
    lengths: Lengths

    @classmethod
    def of(cls, args: Sequence[Ragged | Tensor]) -> "Form":
        """Return the form of the deepest of some values."""
        packed = [arg for arg in args if isinstance(arg, Ragged)]
        if not packed:
            return cls(1, ())
        deepest = max(packed, key=lambda arg: len(arg.lengths))
        lengths = deepest.lengths
        return cls(len(lengths[0]) if lengths else len(deepest.values), lengths)

    def size(self, depth: int) -> int:
        """Return the number of elements of a value with the first `depth` axes."""
        return int(self.lengths[depth - 2].sum()) if depth > 1 else self.first


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
    form = Form.of(args)
    flat = [_broadcast(arg, axes, form) for arg, axes in zip(args, expected, strict=True)]
    results = _invoke(op, function, flat, expected, form.lengths, node)
    return [_wrap(op, x, type, form, node) for x, type in zip(results, types, strict=True)]


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


def spread(values: Tensor, level: int, to: int, lengths: Lengths) -> Tensor:
    """Repeat the elements of nesting `level` for each of their elements of level `to`."""
    for depth in range(level, max(level, to)):
        values = values.repeat_interleave(lengths[depth], dim=0)
    return values


def parents(lengths: Lengths, level: int) -> Tensor:
    """Return the number of the first-axis element that each element of `level` lies in."""
    count = len(lengths[0]) if lengths else 0
    return spread(torch.arange(count), 0, level, lengths)


def _broadcast(arg: Ragged | Tensor, axes: tuple[Axis, ...], form: Form) -> Tensor:
    """Return the elements of an argument, one for each element of `axes`."""
    if isinstance(arg, Ragged):
        return spread(arg.values, len(arg.lengths), len(axes) - 1, form.lengths)
    return arg.expand(form.size(len(axes))) if axes else arg


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
        return _several(op, result, len(op.signature.results), node)
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
    level = _level(op.per, max(axes, key=len))
    columns = [_units(x, len(a) - 1, level, lengths) for x, a in zip(flat, axes, strict=True)]
    count = len(op.signature.results)
    parts: list[list[Tensor]] = [[] for _ in range(count)]
    for unit in zip(*columns, strict=True):
        result = _several(op, _guarded(op, function, list(unit), options, node), count, node)
        for column, part in zip(parts, result, strict=True):
            column.append(torch.as_tensor(part).reshape(-1))
    return [torch.cat(column) if column else torch.zeros(0) for column in parts]


def _level(per: Per, axes: tuple[Axis, ...]) -> int:
    """Return how deep the unit that a user's function sees lies: a sample, or a group."""
    names = [axis.name for axis in axes]
    return names.index("sample") if per is Per.SAMPLE and "sample" in names else 0


def _several(op: TensorOp, result: Any, count: int, node: Node) -> list[Any]:
    """Return the results of a function, one for each result type."""
    results = list(result) if isinstance(result, tuple) else [result]
    if len(results) == count:
        return results
    raise EngineError(
        f"{op.name}: the function must return {_counted(count, 'tensor')}; "
        f"got {_counted(len(results), 'tensor')}",
        where=node.loc.excerpt(),
        hint=f"its signature is {op.signature}; several results are a tuple",
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
    """Call the function; say where in the program it failed."""
    try:
        return function(*args, **options)
    except Exception as error:
        if op.user is None:
            if isinstance(error, ValueError):  # an option or a size that it refuses
                raise EngineError(f"{op.name}: {error}", where=node.loc.excerpt()) from error
            raise
        shapes = ", ".join(str(tuple(x.shape)) for x in args if isinstance(x, Tensor))
        raise EngineError(
            f"{op.name}: the function raised {type(error).__name__}: {error}",
            where=node.loc.excerpt(),
            hint=f"it was called with tensors of shapes {shapes}, per={op.per.value!r}",
        ) from error


DTYPES = {DType.I32: torch.int64, DType.BOOL: torch.bool}


def _wrap(op: TensorOp, x: Any, type: Type, form: Form, node: Node) -> Ragged | Tensor:
    assert isinstance(type, TensorType)
    x = torch.as_tensor(x)
    expected = form.size(len(type.axes)) if type.axes else 1
    if x.numel() != expected:
        raise EngineError(
            f"{op.name}: the function must return {_counted(expected, 'element')} for {type}; "
            f"got a tensor of shape {tuple(x.shape)}",
            where=node.loc.excerpt(),
            hint=f"with per={op.per.value!r} it returns an element for each of its result type",
        )
    if op.user is not None:
        x = _checked(op, x.to(DTYPES.get(type.dtype, torch.get_default_dtype())), node)
    return Ragged(x.reshape(-1), form.lengths[: len(type.axes) - 1]) if type.axes else x.reshape(())


def _checked(op: TensorOp, x: Tensor, node: Node) -> Tensor:
    """Return what a user's function gave, unless there is NaN in it."""
    bad = int(x.detach().isnan().sum())
    if not bad:
        return x
    raise EngineError(
        f"{op.name}: the function returned NaN in {bad} of {_counted(x.numel(), 'element')}",
        where=node.loc.excerpt(),
        hint="look for 0 / 0 and log of what is below 0; give samples without a score a number",
    )
