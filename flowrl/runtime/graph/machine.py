"""What walks a graph, so that control flow is written once.

The interpreter has the values; the controller of workers has references to them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Graph, Node
from flowrl.ir.types import Axis
from flowrl.runtime.host import Path
from flowrl.runtime.rows import selection
from flowrl.runtime.rows.selection import Selection


class Machine(Protocol):
    """What control flow asks of whoever walks a graph."""

    def run(self, graph: Graph, inputs: Sequence[Any], path: Path = ()) -> list[Any]:
        """Return the outputs of a graph; `path` has the turns of the loops around it."""
        ...

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return `function(*args)`, computed where the first value among `args` is."""
        ...

    def number(self, function: Callable[[Any], int], value: Any) -> int:
        """Return a number about a value: control flow decides by nothing else."""
        ...

    def words(self, function: Callable[[Any], str], value: Any) -> str:
        """Return a few words about a value, for an error."""
        ...

    def place(self, node: Node) -> str:
        """Return the lines of the user's source that made a node, for an error."""
        ...

    def draw(self, source: str, count: int) -> dict[str, Any]:
        """Return the fields of the next rows of a data input, by name."""
        ...


def minibatch(value: Any, division: Sequence[Selection], turn: int, axes: Sequence[Axis]) -> Any:
    """Return the rows of one turn of a scan."""
    return selection.take(division[turn], value, axes)


def chosen(value: Any, rows: Selection, axes: Sequence[Axis]) -> Any:
    """Return the selected rows."""
    return selection.take(rows, value, axes)


def joined(*parts: Any) -> Any:
    """Return the rows of several rounds, one after another."""
    return selection.concat(parts)


def stacked(*turns: Tensor) -> Ragged:
    """Return a scalar of each turn as f32[turn]."""
    return Ragged(torch.stack(turns) if turns else torch.zeros(0))


def kept(rows: Selection) -> int:
    """Return the number of first-axis elements that are selected."""
    return len(rows.index[0])
