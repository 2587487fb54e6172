"""What a step does: the ops that run models, and what moves; how often, on how many sequences."""

from collections.abc import Container, Mapping, Sequence
from math import ceil, prod

import attrs

from flowrl.compiler.cost.lengths import Lengths
from flowrl.compiler.cost.workload import Workload
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.printer import names_of
from flowrl.ir.types import Axis, DType, MinibatchesType, ModelType, SelectionType, TensorType
from flowrl.ops.buffer import Append
from flowrl.ops.control import ControlOp, SampleUntil, Scan
from flowrl.ops.division import Division, Microbatches, Minibatches
from flowrl.ops.model import Generate, ModelOp, Update
from flowrl.ops.move import Transfer

PAIR = 2.0
"""Samples a prompt in data that brings its own: the chosen and the rejected one."""

BYTES = {DType.F32: 4, DType.I32: 4, DType.BOOL: 1, DType.ROW: 8}
INDEX_BYTES = 8
PHASES = {"generate": "generate", "update": "update", "snapshot": "copy", "ema": "copy"}
"""The phase of a kind of task; all others score."""


@attrs.frozen
class Seat:
    """One use of a model, which must live in some pool.

    Attributes:
        role: the model.
        use: `train`, `generate` or `score`.
    """

    role: str
    use: str

    def __str__(self) -> str:
        return f"{self.role}.{self.use}"


@attrs.frozen
class Task:
    """One op that runs a model.

    Attributes:
        name: of its results in the printed graph; `%17/%0` is inside the op `%17`.
        kind: `generate`, `logprobs`, `values`, `rewards`, `update`, `snapshot`, `ema`, ...
        seat: which use of which model.
        sequences: prompt with completion, each time it runs; an expected number.
        prompt_tokens: of a sequence.
        response_tokens: of a sequence.
        times: how often it runs in a step: turns of a scan, rounds of `sample_until`.
        passes: of an update: 2 if the loss needs all rows before the first backward.
        after: the tasks whose results it needs, by their place in the list.
        loc: the line of the program.
        weights: the `transfer` or `reshard` that its weights come by, as printed; "" of none.
    """

    name: str
    kind: str
    seat: Seat
    sequences: float
    prompt_tokens: Lengths
    response_tokens: Lengths
    times: float = 1
    passes: int = 1
    after: tuple[int, ...] = ()
    loc: str = ""
    weights: str = ""

    @property
    def phase(self) -> str:
        """What executors count its seconds as; `copy` they don't."""
        return PHASES.get(self.kind, "score")

    def __str__(self) -> str:
        return f"{self.name} {self.kind} {self.seat.role}"


@attrs.frozen
class Move:
    """One value that moves, or one model that is laid out anew.

    Attributes:
        name: of its result in the printed graph, as of a task.
        node: the `transfer` or `reshard`.
        elements: of the value, each time; 0 of a model.
        times: how often it moves in a step.
    """

    name: str
    node: Node
    elements: float
    times: float

    @property
    def bytes(self) -> float:
        """Of the value, each time; rows of the data and selections count as numbers."""
        kind = self.node.args[0].type
        return self.elements * (BYTES[kind.dtype] if isinstance(kind, TensorType) else INDEX_BYTES)


def tasks_of(graph: Graph, workload: Workload) -> tuple[Task, ...]:
    """Return the ops of a graph that run a model, in the order of the program.

    A scan's body appears once, with the number of its turns; `sample_until` with its expected
    rounds. Of a `cond`, both graphs appear: it can't be known which will run.

    Args:
        graph: of any stage; `passes` are known after `split_losses`.
        workload: how many prompts a step has, and how long sequences are expected to be.
    """
    return tuple(_Walk(workload).of(graph).tasks)


def moves_of(graph: Graph, workload: Workload) -> tuple[Move, ...]:
    """Return what moves in a lowered graph, in the order of the program.

    Args:
        graph: after `insert_transfers`.
        workload: as of `tasks_of`.
    """
    return tuple(_Walk(workload).of(graph).moves)


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

    def bytes(self, value: Value) -> float:
        """Return what a value takes; a row of the data or a selection counts as numbers."""
        if isinstance(value.type, ModelType):
            return 0.0
        each = BYTES[value.type.dtype] if isinstance(value.type, TensorType) else INDEX_BYTES
        return each * prod(self.axes[axis] for axis in _axes(value))


def sizes_of(graph: Graph, workload: Workload) -> Sizes:
    """Return the expected sizes of the values of a graph; see `tasks_of`."""
    walk = _Walk(workload).of(graph)
    return Sizes(walk.sizes, walk.turns)


def _axes(value: Value) -> tuple[Axis, ...]:
    """Return the axes that a value has elements along."""
    if isinstance(value.type, SelectionType):
        return tuple(new for _, new in value.type.axes if new.name in ("prompt", "sample"))
    return value.axes


def seats_of(tasks: Sequence[Task]) -> tuple[Seat, ...]:
    """Return the seats that tasks take, each once, in their order."""
    return tuple(dict.fromkeys(task.seat for task in tasks))


def home_of(seat: Seat, placed: Container[Seat]) -> Seat:
    """Return the seat whose weights a seat uses: without a place of its own, where it trains."""
    return seat if seat in placed else Seat(seat.role, "train")


class _Walk:
    """Walks a graph with the expected size of each axis and the tasks behind each value."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.tasks: list[Task] = []
        self.moves: list[Move] = []
        self.usual = {
            "prompt": workload.prompts,
            "sample": PAIR,
            "context": workload.prompt_tokens.mean,
            "token": workload.response_tokens.mean,
        }
        self.sizes: dict[Axis, float] = {}
        self.behind: dict[Value, frozenset[int]] = {}
        self.moved_by: dict[Value, str] = {}
        self.turns: dict[Value, float] = {}

    def of(self, graph: Graph) -> "_Walk":
        for _, value in graph.inputs:
            self._measure(value)
            self.behind[value] = frozenset()
        self._graph(graph, 1, "", frozenset())
        return self

    def _graph(self, graph: Graph, times: float, prefix: str, first: frozenset[int]) -> None:
        """Walk nodes; `first` are the tasks before anything of this graph."""
        names = names_of(graph)
        for node in graph.nodes:
            behind = first.union(*(self.behind[arg] for arg in node.args))
            number = names[node.results[0]].partition(".")[0] if node.results else ""
            if isinstance(node.op, ControlOp):
                behind = self._control(node, node.op, times, f"{prefix}{number}/", behind)
            self._measure_results(node)
            if isinstance(node.op, ModelOp):
                self.tasks.append(self._task(node, node.op, times, prefix + number, behind))
                behind = frozenset({len(self.tasks) - 1})
            if isinstance(node.op, Transfer):
                elements = self._elements(node.args[0])
                self.moves.append(Move(prefix + number, node, elements, times))
                self.moved_by[node.results[0]] = prefix + number
            self.behind.update(dict.fromkeys(node.results, behind))

    def _task(
        self, node: Node, op: ModelOp, times: float, name: str, behind: frozenset[int]
    ) -> Task:
        model = node.args[0].type
        assert isinstance(model, ModelType)
        tokens = node.results[:1] if isinstance(op, Generate) else node.own_args[2:3]
        sequences = sum(prod(self.sizes[axis] for axis in v.axes[:-1]) for v in tokens)
        return Task(
            name=name,
            kind=op.name,
            seat=Seat(model.role, op.use),
            sequences=sequences,
            prompt_tokens=self.workload.prompt_tokens,
            response_tokens=self.workload.response_tokens,
            times=times,
            passes=(op.passes or 1) if isinstance(op, Update) else 1,
            after=tuple(sorted(behind)),
            loc=str(node.loc),
            weights=self.moved_by.get(node.args[0], ""),
        )

    def _control(
        self, node: Node, op: ControlOp, times: float, prefix: str, behind: frozenset[int]
    ) -> frozenset[int]:
        """Walk the nested graphs; return the tasks behind what comes out of them."""
        for name, region in op.regions().items():
            given = list(zip(region.inputs, op.handed_in(name, node.args), strict=False))
            self.behind |= {inner: self.behind[outer] for (_, inner), outer in given}
            self.moved_by |= {
                inner: self.moved_by[outer] for (_, inner), outer in given if outer in self.moved_by
            }
            for _, inner in region.inputs:
                self.behind.setdefault(inner, behind)
                self._measure(inner)
            self._graph(region, times * self._turns(node, op), prefix, behind)
        made = [self.behind[v] for r in op.regions().values() for _, v in r.outputs]
        return behind.union(*made)

    def _turns(self, node: Node, op: ControlOp) -> float:
        if isinstance(op, SampleUntil):
            return self.workload.rounds
        return self.turns[node.args[0]] if isinstance(op, Scan) else 1

    def _measure(self, value: Value) -> None:
        """Give the axes of an input that are not known yet the sizes of the workload."""
        for axis in value.axes:
            self.sizes.setdefault(axis, self.usual.get(axis.name, 1.0))

    def _elements(self, value: Value) -> float:
        is_model = isinstance(value.type, ModelType)
        return 0.0 if is_model else prod(self.sizes[axis] for axis in _axes(value))

    def _measure_results(self, node: Node) -> None:
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

    def _resize(self, axes: Sequence[tuple[Axis, Axis]], rows: int) -> None:
        """Give fresh axes the sizes of those that they are made of, but the first one its own."""
        self.sizes |= {new: self.sizes.get(old, 1) for old, new in axes}
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
