"""Evaluate tensor ops: broadcast packed values, call the function, wrap what it returns."""

from collections.abc import Sequence

from torch import Tensor

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Node
from flowrl.ops.tensor import TensorOp
from flowrl.runtime.graph.calls import Call
from flowrl.runtime.rows.form import Form


def evaluate(op: TensorOp, args: Sequence[Ragged | Tensor], node: Node) -> list[Ragged | Tensor]:
    """Return the results of a tensor op on packed values.

    Raises:
        EngineError: the function raised, or returned another number of elements, or NaN.
    """
    axes = op.signature.broadcast(tuple(value.type for value in node.args))
    given = list(zip(node.args, args, strict=True))
    forms = [Form.over(of, given) for of in axes]
    flat = [f.broadcast(x, len(of)) for f, x, of in zip(forms, args, axes, strict=True)]
    call = Call.of(op, node)
    packed = []
    for x, result in zip(call(flat, axes, forms), node.results, strict=True):
        form = Form.over(result.axes, given)
        packed.append(_packed(call.check(x, result, form), len(result.axes), form))
    return packed


def _packed(x: Tensor, depth: int, form: Form) -> Ragged | Tensor:
    """Return elements as a value with `depth` axes."""
    return Ragged(x.reshape(-1), form.lengths[: depth - 1]) if depth else x.reshape(())
