"""The expected sizes of the values of a step, from the work that it has."""

from collections.abc import Mapping, Sequence
from math import ceil, prod

import attrs

from flowrl.compiler.target import Workload
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.types import Axis, DType, MinibatchesType, ModelType, SelectionType, TensorType
from flowrl.ops.buffer import Append
from flowrl.ops.control import ControlOp, SampleUntil
from flowrl.ops.division import Division, Microbatches, Minibatches
from flowrl.ops.model import Generate

PAIR = 2.0
"""Samples a prompt in data that brings its own: the chosen and the rejected one."""

BYTES = {DType.F32: 4, DType.I32: 4, DType.BOOL: 1, DType.ROW: 8}
INDEX_BYTES = 8
"""Of an element of a selection."""


@attrs.frozen(eq=False)
class Sizes:
    """The expected sizes of the values of a graph, and of those inside it.

    Attributes:
        axes: elements along each axis; of an inner axis, of each outer element.
        turns: of each division into minibatches.
    """

    axes: Mapping[Axis, float]
    turns: Mapping[Value, float]

    def count(self, value: Value) -> float:
        """Return the elements of a value's first axis; of a division, its turns."""
        axes = _axes(value)
        return self.turns.get(value, self.axes[axes[0]] if axes else 1.0)

    def sequences(self, tokens: Value) -> float:
        """Return how many sequences a value of tokens has."""
        return prod(self.axes[axis] for axis in tokens.axes[:-1])

    def bytes(self, value: Value) -> float:
        """Return what a value takes; 0 of a model, and rows of the data count as numbers."""
        if isinstance(value.type, ModelType):
            return 0.0
        each = BYTES[value.type.dtype] if isinstance(value.type, TensorType) else INDEX_BYTES
        return each * prod(self.axes[axis] for axis in _axes(value))


def sizes_of(graph: Graph, workload: Workload) -> Sizes:
    """Return the expected sizes of the values of a graph.

    Args:
        graph: of any stage.
        workload: how many prompts a step has, and how long sequences are expected to be.
    """
    measured = _Measured(workload)
    measured.graph(graph)
    return Sizes(measured.sizes, measured.turns)


def _axes(value: Value) -> tuple[Axis, ...]:
    """Return the axes that a value has elements along."""
    if isinstance(value.type, SelectionType):
        return tuple(new for _, new in value.type.axes if new.name in ("prompt", "sample"))
    return value.axes


class _Measured:
    """Walks a graph, and gives each axis its size where it is made."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.usual = {
            "prompt": workload.prompts,
            "example": workload.prompts,
            "sample": PAIR,
            "context": workload.prompt_tokens.mean,
            "token": workload.response_tokens.mean,
        }
        self.sizes: dict[Axis, float] = {}
        self.turns: dict[Value, float] = {}

    def graph(self, graph: Graph) -> None:
        for _, value in graph.inputs:
            self._measure(value)
        for node in graph.nodes:
            if isinstance(node.op, ControlOp):
                for region in node.op.regions().values():
                    self.graph(region)
            self._results(node)

    def _measure(self, value: Value) -> None:
        """Give the axes of a value that are not known yet the sizes of the workload."""
        for axis in value.axes:
            self.sizes.setdefault(axis, self.usual.get(axis.name, 1.0))

    def _results(self, node: Node) -> None:
        """Give the axes that a node makes their expected sizes."""
        op = node.op
        if isinstance(op, Generate):
            self.sizes[op.axes[0]] = op.n
        if isinstance(op, SampleUntil):
            self._resize(op.batch_axes, op.groups)
            self._resize(op.surplus_axes, op.capacity)
        if isinstance(op, Append):
            self._resize(op.axes, op.capacity)  # full, but for the first steps
        for value in node.results:
            if isinstance(value.type, SelectionType):
                for old, new in value.type.axes:
                    self.sizes[new] = self.sizes[old]
            if isinstance(value.type, MinibatchesType) and isinstance(op, Division):
                self._divide(value, value.type.selection, op)
            self._measure(value)

    def _resize(self, axes: Sequence[tuple[Axis, Axis]], rows: int | None) -> None:
        """Give fresh axes the sizes of those they are made of; the first has `rows`, if given."""
        self.sizes |= {new: self.sizes.get(old, 1) for old, new in axes}
        if rows is not None:
            self.sizes[axes[0][1]] = rows

    def _divide(self, value: Value, selection: SelectionType, op: Division) -> None:
        """Give the axes of a turn their sizes, and the division its number of turns."""
        prompts, *inner = (old for old, _ in selection.axes)
        samples = next((self.sizes[axis] for axis in inner if axis.name == "sample"), 1.0)
        total = self.sizes[prompts] * samples
        few, epochs = total, 1
        if isinstance(op, Minibatches):
            few, epochs = min(op.sequences, total), op.epochs
        elif isinstance(op, Microbatches):
            few = min(op.max_tokens / self.workload.sequence_tokens, total)
        for old, new in selection.axes:
            self.sizes[new] = self.sizes[old]
        self.sizes[selection.axes[0][1]] = few / samples
        self.turns[value] = ceil(total / few) * epochs if few else 0
