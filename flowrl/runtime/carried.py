"""Rows that are carried from step to step: none at first, added to, written down."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import torch

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Graph, Value
from flowrl.ir.types import Axis, DType
from flowrl.runtime import selection
from flowrl.runtime.calls import DTYPES


def buffer_inputs(graph: Graph, name: str) -> dict[str, Value]:
    """Return the inputs of a graph that one carried buffer makes, by name."""
    return {key: value for key, value in graph.inputs if key.startswith(f"{name}.")}


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
