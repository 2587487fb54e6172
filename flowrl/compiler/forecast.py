"""What a planned step is predicted to take: seconds by task, bytes by edge, memory by GPU."""

from collections.abc import Mapping
from typing import Any

import attrs

from flowrl.compiler.cost.links import crossing_seconds
from flowrl.compiler.cost.memory import Memory, Residency, memory
from flowrl.compiler.cost.phase import Phase
from flowrl.compiler.cost.seconds import seconds
from flowrl.compiler.layouts import Placement, Storage
from flowrl.compiler.planning import Planned
from flowrl.compiler.reshard import plan_reshard
from flowrl.compiler.tasks import Move, Seat, Task, moves_of
from flowrl.ir.layout import Layout
from flowrl.ir.plan import Pool
from flowrl.ir.types import ModelType, Type
from flowrl.ops.move import Reshard


@attrs.frozen
class TaskForecast:
    """A task of the step.

    Attributes:
        task: what is done.
        pool: where.
        layout: of its model.
        phase: seconds of all its turns, by what they are spent on.
        start: of its own work, in seconds from the start of the step.
        end: of it.
    """

    task: Task
    pool: str
    layout: str
    phase: Phase
    start: float
    end: float

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        task = self.task
        return {
            "op": task.name,
            "kind": task.kind,
            "seat": str(task.seat),
            "loc": task.loc,
            "pool": self.pool,
            "layout": self.layout,
            "sequences": task.sequences,
            "times": task.times,
            "start": self.start,
            "end": self.end,
            "seconds": self.phase.seconds,
            "terms": dict(self.phase.terms),
        }


@attrs.frozen
class Edge:
    """What goes from one pool to another, or from one layout to another.

    Attributes:
        name: of the value in the printed graph.
        what: its type.
        source: its pool before.
        target: its pool after.
        layouts: of a model, before and after; empty of data.
        times: that it goes there in a step; an expected number.
        bytes: over links, in a step.
        ratio: bytes moved for each that must be; None of data.
        seconds: in a step.
        loc: the line of the program that wants it there.
    """

    name: str
    what: str
    source: str
    target: str
    layouts: tuple[str, str]
    times: float
    bytes: float
    ratio: float | None
    seconds: float
    loc: str

    @property
    def crosses(self) -> bool:
        """Whether it goes to another pool, not only to another layout."""
        return self.source != self.target


@attrs.frozen
class Occupancy:
    """Memory of the fullest GPU of a pool while one seat works.

    Attributes:
        pool: its name.
        seat: that works.
        residency: what becomes of it while another does.
        items: what that one takes, in bytes.
        asleep: what each other seat of the pool takes meanwhile, in bytes.
        capacity: of the GPU, in bytes.
    """

    pool: str
    seat: Seat
    residency: Residency
    items: Mapping[str, int]
    asleep: Mapping[str, int]
    capacity: int

    @property
    def total(self) -> int:
        """Bytes in use."""
        return sum(self.items.values()) + sum(self.asleep.values())


@attrs.frozen
class Forecast:
    """A step, as predicted.

    Attributes:
        tasks: in the order of the program.
        edges: in the order of the lowered graph.
        memory: for each pool, and each seat of it.
        seconds: from the start of a step to the start of the next.
    """

    tasks: tuple[TaskForecast, ...]
    edges: tuple[Edge, ...]
    memory: tuple[Occupancy, ...]
    seconds: float

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON-able data, as plans carry it."""
        return {
            "seconds": self.seconds,
            "tasks": [each.as_data() for each in self.tasks],
            "edges": [{**attrs.asdict(e), "layouts": list(e.layouts)} for e in self.edges],
            "memory": [{**attrs.asdict(of), "seat": str(of.seat)} for of in self.memory],
        }


def forecast(planned: Planned) -> Forecast:
    """Return what a planned step is predicted to take."""
    return _Forecaster(planned).all()


class _Forecaster:
    def __init__(self, planned: Planned) -> None:
        self.planned, self.found, self.target = planned, planned.found, planned.target
        self.pools = {pool.name: pool for pool in planned.cluster.pools}

    def all(self) -> Forecast:
        return Forecast(
            tuple(self._task(number) for number in range(len(self.planned.tasks))),
            tuple(map(self._edge, moves_of(self.planned.graph, self.target.workload))),
            tuple(map(self._occupancy, self.found.seats)),
            self.found.seconds,
        )

    def _task(self, number: int) -> TaskForecast:
        task, spans = self.planned.tasks[number], self.found.spans
        own, trained = task.seat, Seat(task.seat.role, "train")
        its = self.found.seats[own if own in self.found.seats else trained]
        ranks, shape = self.pools[its.pool].ranks, self.target.shapes[own.role]
        once = seconds(task, shape, its.layout, ranks, self.target, its.cache_share)
        start, end = spans.computes[number], spans.ends[number]
        return TaskForecast(task, its.pool, str(its.layout), once * task.times, start, end)

    def _edge(self, move: Move) -> Edge:
        kind = move.node.args[0].type
        source, target = self.pools[move.node.args[0].pool], self.pools[move.node.pool]
        if isinstance(kind, ModelType) and isinstance(move.node.op, Reshard):
            ends = self._weights(kind, source), self._weights(move.node.results[0].type, target)
            plan = plan_reshard(self.target.shapes[kind.role], *ends, self.target.machines)
            what, layouts = f"model<{kind.role}>", (str(ends[0].layout), str(ends[1].layout))
            moved, took = float(plan.bytes_moved), plan.seconds
        else:
            plan, what, layouts, moved = None, str(kind), ("", ""), move.bytes
            took = self._crossing(move.bytes, source, target)
        return Edge(
            name=move.name,
            what=what,
            source=source.name,
            target=target.name,
            layouts=layouts,
            times=move.times,
            bytes=moved * move.times,
            ratio=plan.ratio if plan else None,
            seconds=took * move.times,
            loc=str(move.node.loc),
        )

    def _weights(self, kind: Type, pool: Pool) -> Placement:
        """Return where a model lies; an engine that samples joins what a trainer has apart."""
        assert isinstance(kind, ModelType)
        engine = self.found.seats.get(Seat(kind.role, "generate"))
        samples = engine is not None and (engine.pool, str(engine.layout)) == (
            pool.name,
            kind.layout,
        )
        return Placement(
            Layout.parse(kind.layout),
            pool.ranks,
            Storage.ENGINE if samples else Storage.MODEL,
            self.target.workload.settings(kind.role).weight_bytes,
        )

    def _crossing(self, size: float, source: Pool, target: Pool) -> float:
        """Return the seconds of data between pools; without GPUs, over the bus of the other's."""
        machines = self.target.machines
        if source.gpus and target.gpus:
            return crossing_seconds(machines, size, source.ranks, target.ranks)
        ranks = source.ranks or target.ranks
        return size / machines.gpu(ranks[0]).pcie_bytes_per_s if ranks else 0.0

    def _occupancy(self, seat: Seat) -> Occupancy:
        pool = self.found.seats[seat].pool
        others = [s for s, its in self.found.seats.items() if its.pool == pool and s != seat]
        return Occupancy(
            pool,
            seat,
            self.found.seats[seat].residency,
            self._memory(seat).awake(self.found.seats[seat].residency).items,
            {str(s): self._memory(s).asleep(self.found.seats[s].residency).total for s in others},
            min(self.target.machines.gpu(rank).usable_bytes for rank in self.pools[pool].ranks),
        )

    def _memory(self, seat: Seat) -> Memory:
        its, shape = self.found.seats[seat], self.target.shapes[seat.role]
        most = max(task.sequences for task in self.planned.tasks if task.seat == seat)
        ranks = self.pools[its.pool].ranks
        return memory(seat, shape, its.layout, ranks, self.target, most, its.cache_share)
