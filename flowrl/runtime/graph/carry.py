"""What is carried from step to step: models, and `fl.Carry` values, numbers or rows of buffers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Graph
from flowrl.ir.program import Input, InputKind
from flowrl.ir.records import Buffer, flatten, leaf_names
from flowrl.ir.types import Axis, DType, TensorType
from flowrl.runtime.graph.calls import DTYPES
from flowrl.runtime.rows import selection

Carry = dict[str, Any]
"""The models, by role, and the values of `fl.Carry` arguments, by name."""


def first_value(spec: Input, graph: Graph, make: Callable[[str, DType, int], Any]) -> Any:
    """Return a carried value before the first step; of a buffer, its rows by graph input.

    Args:
        spec: the argument.
        graph: where it is an input, or several.
        make: called with pool, dtype and number of axes, gives a value without rows there.
    """
    if not isinstance(spec.initial, Buffer):
        return spec.initial
    its = {name: value for name, value in graph.inputs if name.startswith(f"{spec.name}.")}
    return {
        name: make(value.pool, value.type.dtype, len(value.axes))
        for name, value in its.items()
        if isinstance(value.type, TensorType)
    }


def carried(spec: Input, carry: Carry) -> dict[str, Any]:
    """Return the values of the graph's inputs that a model or carried value makes."""
    if spec.kind is InputKind.MODEL:
        return {spec.name: carry.get(spec.name)}
    if isinstance(spec.initial, Buffer):
        return dict(carry[spec.name])
    leaves, names = flatten(carry[spec.name])[0], leaf_names(carry[spec.name], spec.name)
    tensors = [torch.as_tensor(x, dtype=torch.get_default_dtype()) for x in leaves]
    return dict(zip(names, tensors, strict=True))


def next_carry(spec: Input, carry: Carry, named: Mapping[str, Any]) -> Any:
    """Return a model or carried value after a step, of the graph's outputs by name."""
    if spec.kind is InputKind.MODEL:
        return named.get(spec.name, carry[spec.name])
    if isinstance(spec.initial, Buffer):
        return {name: named[name] for name in carry[spec.name]}
    unflatten = flatten(carry[spec.name])[1]
    return unflatten([float(named[name]) for name in leaf_names(carry[spec.name], spec.name)])


def buffers_of(inputs: Sequence[Input], carry: Carry) -> dict[str, dict[str, Any]]:
    """Return the carried buffers, by the name of their argument."""
    return {spec.name: carry[spec.name] for spec in inputs if isinstance(spec.initial, Buffer)}


def no_rows(dtype: DType, depth: int) -> Any:
    """Return a value of `depth` axes that has no rows."""
    if dtype is DType.ROW:
        return ()
    none = torch.zeros(0, dtype=torch.int64)
    values = torch.zeros(0, dtype=DTYPES.get(dtype, torch.get_default_dtype()))
    return Ragged(values, (none,) * (depth - 1))


def append(earlier: Any, later: Any, capacity: int, axes: Sequence[Axis]) -> Any:
    """Return the last `capacity` rows of two values, one after the other."""
    joined = selection.concat([earlier, later])
    count = selection.count(joined)
    return selection.first(joined, axes, max(0, count - capacity), count)


def write_rows(path: str, names: Sequence[str], *values: Any) -> int:
    """Write the values of a buffer as torch does; return how many there are.

    A tensor is its elements, then its lengths, outermost first; a row of the data its fields.
    """
    plain = [
        [x.values, *x.lengths] if isinstance(x, Ragged) else [attrs.asdict(row) for row in x]
        for x in values
    ]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    torch.save(dict(zip(names, plain, strict=True)), path)
    return len(values)
