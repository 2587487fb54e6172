"""Profiles that fit what steps of a run took, op by op."""

from collections.abc import Iterable, Sequence
from statistics import median

import attrs

from flowrl.compiler.cost.links import slowest
from flowrl.compiler.forecast import EdgeForecast, Forecast, TaskForecast, forecast
from flowrl.compiler.planning import Planned
from flowrl.compiler.target import Lengths, Profile
from flowrl.compiler.target.profile import Key
from flowrl.ir.graph import Graph
from flowrl.runtime.executor import Step
from flowrl.train.predict import as_run

SAMPLED = "tokens/sampled"


@attrs.frozen
class Work:
    """What a step spends on one kind of work on one kind of GPU.

    Attributes:
        gpu: its name.
        kind: of a task, as plans have it, or `reshard`: weights that move.
        predicted: seconds, with the profile that the run file has.
        measured: seconds; the median of the steps.
    """

    gpu: str
    kind: str
    predicted: float
    measured: float


@attrs.frozen
class Fit:
    """What was measured, and the profile that predicts it.

    Attributes:
        planned: the run, as planned with the lengths that were measured.
        profile: the profile.
        work: what took time, in the order of the program.
        step: seconds of a step; the median.
        rest: seconds of it that no model's ops have, as no plan predicts them: data, rewards,
            cheap ops.
        steps: how many were measured.
        response: tokens of a response on average; None if nothing is generated.
    """

    planned: Planned
    profile: Profile
    work: tuple[Work, ...]
    step: float
    rest: float
    steps: int
    response: float | None


def fitted(planned: Planned, graph: Graph, done: Sequence[Step]) -> Fit:
    """Return the profile by which a plan predicts the seconds that steps took.

    All terms of a kind of work are slowed alike, as only their sum is measured.

    Args:
        planned: what was run, as planned.
        graph: what was run.
        done: the steps that were measured.
    """
    response = _response(planned, [step.metrics.get(SAMPLED, 0.0) for step in done])
    planned = _with_response(planned, response)
    predicted = as_run(forecast(planned), planned.graph, graph)
    every = _work(planned, predicted, done)
    work = tuple(each for each in every if each.predicted and each.measured)
    profile = planned.target.profile.fitted(
        {(each.gpu, each.kind): each.predicted for each in work},
        {(each.gpu, each.kind): each.measured for each in work},
    )
    models = [each.task.name for each in predicted.tasks]
    rest = median(step.elapsed - _spent(step, models) for step in done)
    elapsed = median(step.elapsed for step in done)
    return Fit(planned, profile, work, elapsed, rest, len(done), response)


def _work(planned: Planned, predicted: Forecast, done: Sequence[Step]) -> list[Work]:
    """Return what each kind of work is predicted to take, and took."""
    ops: dict[Key, dict[str, float]] = {}
    for task in predicted.tasks:
        ops.setdefault((_gpu(planned, task), task.task.kind), {})[task.task.name] = (
            task.spent.seconds
        )
    for edge in predicted.edges:
        if edge.ratio is not None:
            ops.setdefault((_target(planned, edge), "reshard"), {})[edge.name] = edge.seconds
    return [
        Work(gpu, kind, sum(of.values()), median(_spent(step, of) for step in done))
        for (gpu, kind), of in ops.items()
    ]


def _spent(step: Step, names: Iterable[str]) -> float:
    """Return the seconds of these ops; some may not have run."""
    return sum(step.ops[name].seconds for name in names if name in step.ops)


def _gpu(planned: Planned, each: TaskForecast) -> str:
    """Return the kind of GPU that a task runs on, as the cost model takes its speeds."""
    return slowest(planned.target.machines, planned.found.seated(each.task.seat).ranks).name


def _target(planned: Planned, edge: EdgeForecast) -> str:
    """Return the kind of GPU that weights go to."""
    ranks = next(pool.ranks for pool in planned.cluster.pools if pool.name == edge.target)
    return slowest(planned.target.machines, ranks).name


def _response(planned: Planned, sampled: Sequence[float]) -> float | None:
    """Return the tokens of a response; `sampled` are those of all, by step."""
    tasks = [task for task in planned.tasks if task.kind == "generate"]
    sequences = sum(task.sequences * task.times for task in tasks)
    return sum(sampled) / len(sampled) / sequences if sequences else None


def _with_response(planned: Planned, mean: float | None) -> Planned:
    """Return the plan with responses of another mean length, their distribution stretched."""
    workload = planned.target.workload
    if not mean:
        return planned
    lengths = _stretched(workload.response_tokens, mean)
    target = attrs.evolve(planned.target, workload=attrs.evolve(workload, response_tokens=lengths))
    tasks = tuple(attrs.evolve(task, response_tokens=lengths) for task in planned.tasks)
    return attrs.evolve(planned, target=target, tasks=tasks)


def _stretched(lengths: Lengths, mean: float) -> Lengths:
    ratio = mean / lengths.mean
    return Lengths(tuple((tokens * ratio, share) for tokens, share in lengths.shares))
