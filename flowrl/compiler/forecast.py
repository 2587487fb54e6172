"""What a planned step is predicted to take: seconds by task, bytes by edge, memory by GPU."""

from typing import Any

import attrs

from flowrl.compiler.cost.links import crossing_seconds
from flowrl.compiler.cost.spent import Spent
from flowrl.compiler.layouts import Sharding
from flowrl.compiler.occupancy import Occupancy, occupancies
from flowrl.compiler.planning import Planned
from flowrl.compiler.reshard import plan_reshard
from flowrl.compiler.tasks import Move, Task, moves_of
from flowrl.ir.types import ModelType


@attrs.frozen
class TaskForecast:
    """A task of the step.

    Attributes:
        task: what is done.
        pool: where.
        layout: of its model.
        spent: seconds of all its turns, by what they are spent on.
        start: of its own work, in seconds from the start of the step.
        end: of it.
    """

    task: Task
    pool: str
    layout: str
    spent: Spent
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
            "seconds": self.spent.seconds,
            "terms": dict(self.spent.terms),
        }


@attrs.frozen
class EdgeForecast:
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
class Sampled:
    """An evaluation by an engine that the step doesn't use.

    Attributes:
        prompts: of an evaluation.
        sequences: sampled of them.
        seconds: that all samples take.
        bytes: of weights over links, before it.
        weight_seconds: until they are there.
    """

    prompts: float
    sequences: float
    seconds: float
    bytes: int
    weight_seconds: float


@attrs.frozen
class Forecast:
    """A step, as predicted.

    Attributes:
        tasks: in the order of the program.
        edges: in the order of the lowered graph.
        memory: for each pool, and each seat of it; that of an evaluation is the last one.
        seconds: from the start of a step to the start of the next.
        evaluation: beside it, by an engine that it doesn't use.
    """

    tasks: tuple[TaskForecast, ...]
    edges: tuple[EdgeForecast, ...]
    memory: tuple[Occupancy, ...]
    seconds: float
    evaluation: Sampled | None = None

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON-able data, as plans carry it."""
        return {
            "seconds": self.seconds,
            "tasks": [each.as_data() for each in self.tasks],
            "edges": [{**attrs.asdict(e), "layouts": list(e.layouts)} for e in self.edges],
            "memory": [{**attrs.asdict(of), "seat": str(of.seat)} for of in self.memory],
            "evaluation": self.evaluation and attrs.asdict(self.evaluation),
        }


def forecast(planned: Planned) -> Forecast:
    """Return what a planned step is predicted to take.

    Requires: a placement, and the lowered graph. Ensures: seconds for every task, bytes for every
    edge, memory for every seat; the seconds of the step are those that the search found.
    """
    return _Forecaster(planned).all()


class _Forecaster:
    def __init__(self, planned: Planned) -> None:
        self.planned, self.found, self.target = planned, planned.found, planned.target
        self.costs = planned.costs
        self.pools = {pool.name: pool for pool in planned.cluster.pools}

    def all(self) -> Forecast:
        return Forecast(
            tuple(self._task(number) for number in range(len(self.planned.tasks))),
            tuple(map(self._edge, moves_of(self.planned.graph, self.target.workload))),
            tuple(occupancies(self.planned)),
            self.found.seconds,
            self._sampled(),
        )

    def _task(self, number: int) -> TaskForecast:
        task, timeline = self.planned.tasks[number], self.found.timeline
        seated = self.found.seated(task.seat)
        pool, spent = self.found.seats[seated.seat].pool, self.costs.spent(task, seated)
        start, end = timeline.computes[number], timeline.ends[number]
        return TaskForecast(task, pool, str(seated.layout), spent * task.times, start, end)

    def _edge(self, move: Move) -> EdgeForecast:
        before, after = move.node.args[0], move.node.results[0]
        if isinstance(before.type, ModelType) and isinstance(after.type, ModelType):
            role = before.type.role
            ends = self._weights(before.type, before.pool), self._weights(after.type, after.pool)
            plan = plan_reshard(self.target.trained(role), *ends, self.target.machines)
            what, layouts = f"model<{role}>", (before.type.layout, after.type.layout)
            share = self.costs.links(self.pools[after.pool].ranks)
            moved, took = float(plan.bytes_moved), plan.seconds / share
        else:
            plan, what, layouts, moved = None, str(before.type), ("", ""), move.bytes
            ranks = self.pools[before.pool].ranks, self.pools[after.pool].ranks
            took = crossing_seconds(self.target.machines, moved, *ranks)
        return EdgeForecast(
            name=move.name,
            what=what,
            source=before.pool,
            target=after.pool,
            layouts=layouts,
            times=move.times,
            bytes=moved * move.times,
            ratio=plan.ratio if plan else None,
            seconds=took * move.times,
            loc=str(move.node.loc),
        )

    def _weights(self, model: ModelType, pool: str) -> Sharding:
        """Return where a model lies: as its seat there in this layout, first one that samples."""
        seats = [
            seat
            for seat, its in self.found.seats.items()
            if (seat.role, its.pool, str(its.layout)) == (model.role, pool, model.layout)
        ]
        seat = min(seats, key=lambda seat: seat.use != "generate")
        return self.costs.sharding(self.found.seated(seat))

    def _sampled(self) -> Sampled | None:
        its = self.planned.evaluation
        if its is None:
            return None
        sequences = sum(task.sequences * task.times for task in its.asked.tasks)
        return Sampled(its.asked.workload.prompts, sequences, its.seconds, *its.brought)
