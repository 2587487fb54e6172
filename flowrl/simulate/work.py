"""What the ops of a planned step take, one execution at a time."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from random import Random

import attrs

from flowrl.compiler.cost.generate import engine_seconds
from flowrl.compiler.cost.links import crossing_seconds
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.cost.weights import batches
from flowrl.compiler.planning import Planned
from flowrl.compiler.residency import residency
from flowrl.compiler.sizes import Sizes, sizes_of
from flowrl.compiler.target import Lengths
from flowrl.compiler.tasks import Task
from flowrl.ir.action import Action, Does
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.plan import Pool
from flowrl.ops.control import ControlOp, SampleUntil
from flowrl.ops.model import ModelOp
from flowrl.runtime.graph.segments import Segment, inner_graphs, segments


@attrs.frozen(eq=False)
class Work:
    """A planned step as simulated workers do it.

    Attributes:
        planned: the plan.
        segments: of each graph, as the controller counts them.
        tasks: what each node that runs a model does.
        ranks: of each task, by name: its speeds.
        seconds: of each task but `generate`, by name: one execution.
        actions: what seats do before each task, by its name.
        trainers: the pool that a role is trained in.
        sizes: of values.
        groups: how many groups a `sample_until` wants, by the axes of what it keeps by.
    """

    planned: Planned
    segments: Sequence[Sequence[Segment]]
    tasks: Mapping[Node, Task]
    ranks: Mapping[str, Rank]
    seconds: Mapping[str, float]
    actions: Mapping[str, Sequence[Action]]
    trainers: Mapping[str, str]
    sizes: Sizes
    groups: Mapping[object, float]

    @classmethod
    def of(cls, planned: Planned) -> "Work":
        """Return the work of a planned step."""
        graph, target, found = planned.graph, planned.target, planned.found
        sizes = sizes_of(graph, target.workload)
        nodes = zip(_model_nodes(graph), planned.tasks, strict=True)
        ranks = {task.name: _rank(planned, task) for task in planned.tasks}
        before: dict[str, list[Action]] = {}
        for action in residency(planned):
            before.setdefault(action.before, []).append(action)
        return cls(
            planned,
            [segments(inner) for inner in inner_graphs(graph)],
            dict(nodes),
            ranks,
            {t.name: _seconds(planned, t) for t in planned.tasks if t.kind != "generate"},
            before,
            {seat.role: its.pool for seat, its in found.seats.items() if seat.use == "train"},
            sizes,
            {
                node.op.draw.outputs[0][1].axes: sizes.axes[node.op.batch_axes[0][1]]
                for inner in inner_graphs(graph)
                for node in inner.nodes
                if isinstance(node.op, SampleUntil)
            },
        )

    def workers(self, pool: Pool) -> int:
        """Return how many workers a pool has: one for each engine that generates, at least one."""
        its = [p for s, p in self.planned.found.seats.items() if s.use == "generate"]
        layouts = [placed.layout for placed in its if placed.pool == pool.name]
        return max((batches(of) for of in layouts), default=1)

    def due(self, task: Task, turn: int) -> Iterator[Action]:
        """Yield what seats do before a turn of a task."""
        for action in self.actions.get(task.name, ()):
            if action.turns[0] <= turn < action.turns[1]:
                yield action

    def source(self, action: Action) -> str | None:
        """Return the pool that an action brings weights from; None of other actions."""
        return self.trainers[action.seat.split(".")[0]] if action.does is Does.BRING else None

    def sampling(self, task: Task, worker: int, workers: int, rng: Random) -> float:
        """Return the seconds in which one engine of a pool samples its share of the sequences.

        Lengths are drawn for each sequence.
        """
        rank = self.ranks[task.name]
        engines = min(workers, rank.batches)
        share, more = divmod(round(task.sequences), engines)
        own = (share + (worker < more)) * (worker < engines)
        if not own:
            return 0.0
        drawn = drawn_lengths(task.response_tokens, own, rng)
        return engine_seconds(task.sequences, rank, own, drawn, inf).seconds

    def crossing(self, size: float, source: str, target: str) -> float:
        """Return the seconds of data between pools."""
        pools = {pool.name: pool for pool in self.planned.cluster.pools}
        machines = self.planned.target.machines
        return crossing_seconds(machines, size, pools[source].ranks, pools[target].ranks)

    def draws(self, source: str) -> list[Value]:
        """Return what a draw of a data input gives, as the graph reads it; less if it reads less.

        Fields come in the order of the controller's: context, rows, and more of examples.
        """
        fields = ("context", "rows", "tokens", "mask")
        read = dict(self.planned.graph.inputs)
        return [read[f"{source}.{field}"] for field in fields if f"{source}.{field}" in read]


def drawn_lengths(lengths: Lengths, count: int, rng: Random) -> Lengths:
    """Return so many lengths drawn from a distribution, as a histogram."""
    if len(lengths.shares) == 1:
        return lengths
    tokens, weights = zip(*lengths.shares, strict=True)
    drawn = rng.choices(tokens, weights, k=count)
    return Lengths.of([(length, drawn.count(length)) for length in set(drawn)])


def _model_nodes(graph: Graph) -> Iterator[Node]:
    """Yield the nodes that run a model, as `tasks_of` orders them."""
    for node in graph.nodes:
        for region in node.op.regions().values() if isinstance(node.op, ControlOp) else ():
            yield from _model_nodes(region)
        if isinstance(node.op, ModelOp):
            yield node


def _rank(planned: Planned, task: Task) -> Rank:
    its, role, target = planned.found.seated(task.seat), task.seat.role, planned.target
    shape = target.shapes[role]
    return Rank.of(task.kind, role, shape, its.layout, its.ranks, target, its.cache_share)


def _seconds(planned: Planned, task: Task) -> float:
    return planned.costs.spent(task, planned.found.seated(task.seat)).seconds
