"""What a step does: the ops that run models, and what moves; how often, on how many sequences."""

from collections.abc import Container, Sequence

import attrs

from flowrl.compiler.sizes import sizes_of
from flowrl.compiler.target import Lengths, Workload
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.printer import names_of, op_name
from flowrl.ir.types import ModelType
from flowrl.ops.control import ControlOp, SampleUntil, Scan
from flowrl.ops.model import Generate, ModelOp, Update
from flowrl.ops.move import Transfer
from flowrl.ops.uses import over_bases

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
        base: the role whose model it reads, if that is the base under the adapter of the seat's.
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
    base: str = ""

    @property
    def phase(self) -> str:
        """What executors count its seconds as; `copy` they don't."""
        return PHASES.get(self.kind, "score")

    def __str__(self) -> str:
        return f"{self.name} {self.kind} {self.base or self.seat.role}"


@attrs.frozen
class Move:
    """One value that moves, or one model that is laid out anew.

    Attributes:
        name: of its result in the printed graph, as of a task.
        node: the `transfer` or `reshard`.
        bytes: of the value, each time; 0 of a model.
        times: how often it moves in a step.
    """

    name: str
    node: Node
    bytes: float
    times: float


def tasks_of(graph: Graph, workload: Workload) -> tuple[Task, ...]:
    """Return the ops of a graph that run a model, in the order of the program.

    A scan's body appears once, with the number of its turns; `sample_until` with its expected
    rounds. Of a `cond`, both graphs appear: it can't be known which will run.

    Args:
        graph: of any stage; `passes` are known after `split_losses`.
        workload: how many prompts a step has, and how long sequences are expected to be.
    """
    return tuple(_Walk(graph, workload).tasks)


def moves_of(graph: Graph, workload: Workload) -> tuple[Move, ...]:
    """Return what moves in a lowered graph, in the order of the program.

    Args:
        graph: after `insert_transfers`.
        workload: as of `tasks_of`.
    """
    return tuple(_Walk(graph, workload).moves)


def seats_of(tasks: Sequence[Task]) -> tuple[Seat, ...]:
    """Return the seats that tasks take, each once, in their order."""
    return tuple(dict.fromkeys(task.seat for task in tasks))


def home_of(seat: Seat, placed: Container[Seat]) -> Seat:
    """Return the seat whose weights a seat uses: without a place of its own, where it trains."""
    return seat if seat in placed else Seat(seat.role, "train")


def loop_of(name: str) -> str:
    """Return the op around an op, both as printed: `%16` of `%16/%0`; "" if there is none."""
    return name.rpartition("/")[0]


class _Walk:
    """Walks a graph with the tasks behind each value."""

    def __init__(self, graph: Graph, workload: Workload) -> None:
        self.workload, self.sizes = workload, sizes_of(graph, workload)
        self.tasks: list[Task] = []
        self.moves: list[Move] = []
        self.behind: dict[Value, frozenset[int]] = {v: frozenset() for _, v in graph.inputs}
        self.moved_by: dict[Value, str] = {}
        self.bases = over_bases(graph)
        self._graph(graph, 1, "", frozenset())

    def _graph(self, graph: Graph, times: float, prefix: str, first: frozenset[int]) -> None:
        """Walk nodes; `first` are the tasks before anything of this graph."""
        names = names_of(graph)
        for node in graph.nodes:
            behind = first.union(*(self.behind[arg] for arg in node.args))
            name = prefix + op_name(node, names)
            if isinstance(node.op, ControlOp):
                behind = self._control(node, node.op, times, f"{name}/", behind)
            if isinstance(node.op, ModelOp):
                self.tasks.append(self._task(node, node.op, times, name, behind))
                behind = frozenset({len(self.tasks) - 1})
            if isinstance(node.op, Transfer):
                self.moves.append(Move(name, node, self.sizes.bytes(node.args[0]), times))
                self.moved_by[node.results[0]] = name
            self.behind.update(dict.fromkeys(node.results, behind))

    def _task(
        self, node: Node, op: ModelOp, times: float, name: str, behind: frozenset[int]
    ) -> Task:
        model = node.args[0].type
        assert isinstance(model, ModelType)
        tokens = node.results[:1] if isinstance(op, Generate) else node.own_args[2:3]
        return Task(
            name=name,
            kind=op.name,
            seat=Seat(self.bases.get(model.role, model.role), op.use),
            sequences=sum(map(self.sizes.sequences, tokens)),
            prompt_tokens=self.workload.prompt_tokens,
            response_tokens=self.workload.response_tokens,
            times=times,
            passes=(op.passes or 1) if isinstance(op, Update) else 1,
            after=tuple(sorted(behind)),
            loc=str(node.loc),
            weights=self.moved_by.get(node.args[0], ""),
            base=model.role if model.role in self.bases else "",
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
            self._graph(region, times * self._turns(node, op), prefix, behind)
        made = [self.behind[v] for r in op.regions().values() for _, v in r.outputs]
        return behind.union(*made)

    def _turns(self, node: Node, op: ControlOp) -> float:
        if isinstance(op, SampleUntil):
            return self.workload.rounds
        return self.sizes.turns[node.args[0]] if isinstance(op, Scan) else 1
