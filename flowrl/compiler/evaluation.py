"""Evaluations beside a step: where an engine lives that they alone use, and what it takes."""

from collections.abc import Iterator

import attrs

from flowrl.compiler.cost.memory import Residency
from flowrl.compiler.hardware import Machines
from flowrl.compiler.search import Found, ModelCosts
from flowrl.compiler.search.costs import Seated
from flowrl.compiler.target import Target, Workload
from flowrl.compiler.tasks import Seat, Task
from flowrl.ir.layout import Layout


@attrs.frozen
class Evaluation:
    """What an engine does that no op of a step uses.

    Attributes:
        seat: that samples.
        tasks: what it samples in an evaluation.
        workload: of an evaluation.
        pool: its name; "" is where the model trains.
        gpus: of a pool in which no op of the step runs a model; 0 leaves their number open.
        layout: of the weights; if None, they are whole on each GPU.
        residency: what becomes of them while others work in the pool.
    """

    seat: Seat
    tasks: tuple[Task, ...]
    workload: Workload
    pool: str
    gpus: int
    layout: Layout | None
    residency: Residency


@attrs.frozen(eq=False)
class Evaluating:
    """An evaluation with a place beside a step.

    Attributes:
        asked: what is evaluated.
        pool: its name.
        seated: the engine over its GPUs.
        source: what trains the weights.
        costs: of the seats of the step and of this one, as evaluations find them.
    """

    asked: Evaluation
    pool: str
    seated: Seated
    source: Seated
    costs: ModelCosts

    @property
    def seconds(self) -> float:
        """What all its samples take."""
        return sum(self.costs.seconds(task, self.seated) for task in self.asked.tasks)

    @property
    def brought(self) -> tuple[int, float]:
        """Bytes of weights over links before an evaluation, and the seconds to have them there."""
        size, took = self.costs.reshard(self.source, self.seated)
        return size, took + sum(self.costs.wake(self.seated, self.asked.residency))

    @property
    def asleep(self) -> int:
        """Bytes of a GPU that the engine has while another seat works."""
        return self.costs.memory(self.seated, self.asked.residency).asleep


def evaluating(
    asked: Evaluation, found: Found, target: Target, tasks: tuple[Task, ...]
) -> Evaluating | None:
    """Return an evaluation with a place beside a step; None if too few GPUs are left for it.

    Args:
        asked: the evaluation.
        found: where the step's seats are.
        target: what the step was planned for.
        tasks: of the step.
    """
    source = found.seated(Seat(asked.seat.role, "train"))
    pool = asked.pool or found.seats[source.seat].pool
    ranks = _ranks(asked, found, target.machines, pool)
    if ranks is None:
        return None
    given = asked.layout
    layout = given if given and given.size == len(ranks) else Layout(dp=len(ranks))
    role, workload = asked.seat.role, asked.workload
    alone = attrs.evolve(workload.settings(role), evaluates=False)  # it has a seat here
    workload = attrs.evolve(workload, roles={**workload.roles, role: alone})
    costs = ModelCosts(attrs.evolve(target, workload=workload), (*tasks, *asked.tasks))
    return Evaluating(asked, pool, Seated(asked.seat, layout, ranks), source, costs)


def _ranks(asked: Evaluation, found: Found, machines: Machines, pool: str) -> range | None:
    """Return the GPUs of the pool: those of the step's, or the first that the step leaves."""
    for its in found.pools:
        if its.name == pool:
            return its.ranks
    left = list(_left(asked, found, machines))
    if left:
        return min(left, key=lambda ranks: machines.node(ranks[-1]) - machines.node(ranks[0]))
    return None if asked.gpus else found.seated(Seat(asked.seat.role, "train")).ranks


def _left(asked: Evaluation, found: Found, machines: Machines) -> Iterator[range]:
    """Yield ranges of GPUs, as many as the pool has, that no pool of the step has."""
    used = {rank for pool in found.pools for rank in pool.ranks}
    count = asked.gpus or (asked.layout.size if asked.layout else 1)
    for first in range(machines.size - count + 1):
        if used.isdisjoint(ranks := range(first, first + count)):
            yield ranks
