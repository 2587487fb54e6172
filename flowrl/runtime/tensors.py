"""Evaluate tensor ops: broadcast packed values, call the function, wrap what it returns."""

from collections.abc import Sequence

from torch import Tensor

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Node, Value
from flowrl.ir.types import Axis, TensorType
from flowrl.ops.tensor import TensorOp
from flowrl.runtime.calls import Call
from flowrl.runtime.form import Form


def evaluate(op: TensorOp, args: Sequence[Ragged | Tensor], node: Node) -> list[Ragged | Tensor]:
    """Return the results of a tensor op on packed values.

    Raises:
        EngineError: the function raised, or returned another number of elements, or NaN.
    """
    axes = op.signature.broadcast(tuple(value.type for value in node.args))
    form, call = Form.of(args), Call.of(op, node)
    flat = [form.broadcast(arg, len(of)) for arg, of in zip(args, axes, strict=True)]
    results = call(flat, axes, form)
    types = [value.type for value in node.results if isinstance(value.type, TensorType)]
    checked = [call.check(x, type, form) for x, type in zip(results, types, strict=True)]
    return [_packed(x, len(type.axes), form) for x, type in zip(checked, types, strict=True)]


def _packed(x: Tensor, depth: int, form: Form) -> Ragged | Tensor:
    """Return elements as a value with `depth` axes."""
    return Ragged(x.reshape(-1), form.lengths[: depth - 1]) if depth else x.reshape(())


def axes_of(value: Value) -> tuple[Axis, ...]:
    """Return the axes of a tensor value."""
    assert isinstance(value.type, TensorType)
    return value.type.axes
