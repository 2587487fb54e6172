"""Profiles: the speeds that a run reaches on the machine at hand, for plans to predict by."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory

import attrs

from flowrl.compiler.cost.links import slowest
from flowrl.compiler.forecast import TaskForecast, forecast
from flowrl.compiler.planning import Planned
from flowrl.compiler.target import Lengths, Profile
from flowrl.config.planned import plan_run
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.runtime.executor import Step
from flowrl.train.executors import opened
from flowrl.train.prepare import lower

WARM_UP = 1
"""Steps that are run first and not measured: caches fill, kernels are chosen."""

SAMPLED = "tokens/sampled"


@attrs.frozen
class Phase:
    """What a step spent on one kind of work.

    Attributes:
        name: as executors have it, `generate`.
        predicted: seconds, with the profile that the run file has.
        measured: seconds; the median of the steps.
    """

    name: str
    predicted: float
    measured: float


@attrs.frozen
class Profiled:
    """What was measured.

    Attributes:
        planned: the run, as planned with the lengths that were measured.
        profile: that predicts what was measured.
        phases: those that took time, in the order of the program.
        step: seconds of a step; the median.
        rest: seconds of it that no phase has, as no plan predicts them: data, rewards, cheap ops.
        steps: how many were measured.
        response: tokens of a response on average; None if nothing is generated.
    """

    planned: Planned
    profile: Profile
    phases: tuple[Phase, ...]
    step: float
    rest: float
    steps: int
    response: float | None


def profile_run(path: str, sets: Sequence[str], steps: int, say: Callable[[str], None]) -> Profiled:
    """Run some steps of a run file, and fit a profile to them.

    The run trains, in a folder that is gone at the end; nothing is evaluated or saved.

    Args:
        path: the run file; `[cluster] machines` names what it runs on.
        sets: `key=value`, laid over it.
        steps: to measure, after those to warm up.
        say: is told what was opened.

    Raises:
        FlowrlError: the run file or its program is wrong, nothing fits, or a step failed.
    """
    with TemporaryDirectory() as folder:
        run = load_run_file(path, (*sets, f'train.folder="{folder}/run"'))
        _, planned = plan_run(run)
        return fitted(planned, measured(run, steps, say))


def measured(run: RunFile, steps: int, say: Callable[[str], None]) -> list[Step]:
    """Return steps of a run, without those that warmed it up."""
    with stepping(run, say) as step:
        return [step() for _ in range(steps)]


@contextmanager
def stepping(run: RunFile, say: Callable[[str], None]) -> Iterator[Callable[[], Step]]:
    """Open a run and warm it up; the function takes its next step. Nothing is evaluated or saved.

    Args:
        run: the run file.
        say: is told what was opened.
    """
    run, numbers = attrs.evolve(run, eval=None), itertools.count()
    with opened(run, lower(run), say) as ready:
        carry = ready.executor.first()

        def step() -> Step:
            nonlocal carry
            done = ready.executor.step(carry, ready.cursors, next(numbers))
            carry = done.carry
            return done

        for _ in range(WARM_UP):
            step()
        yield step


def fitted(planned: Planned, done: Sequence[Step]) -> Profiled:
    """Return the profile by which a plan predicts the seconds that steps took.

    All terms of a phase's tasks are slowed alike, as only their sum is measured.

    Args:
        planned: what was run, as planned.
        done: the steps that were measured.
    """
    response = _response(planned, [step.metrics.get(SAMPLED, 0.0) for step in done])
    planned = _with_response(planned, response)
    predicted = forecast(planned).tasks
    every = [
        Phase(name, _predicted(predicted, name), median(_spent(step, name) for step in done))
        for name in dict.fromkeys(each.task.phase for each in predicted)
    ]
    phases = tuple(phase for phase in every if phase.predicted and phase.measured)
    ratios = {phase.name: phase.measured / phase.predicted for phase in phases}
    keys = {
        (_gpu(planned, each), each.task.kind): ratios[each.task.phase]
        for each in predicted
        if each.task.phase in ratios
    }
    profile = planned.target.profile.fitted(dict.fromkeys(keys, 1.0), keys)
    names = [phase.name for phase in phases]
    rest = median(step.elapsed - sum(_spent(step, name) for name in names) for step in done)
    step = median(step.elapsed for step in done)
    return Profiled(planned, profile, phases, step, rest, len(done), response)


def _spent(step: Step, phase: str) -> float:
    """Return the seconds of a phase; on Ray, of all pools."""
    return sum(s for name, s in step.seconds.items() if name.rpartition("/")[2] == phase)


def _predicted(tasks: Sequence[TaskForecast], phase: str) -> float:
    return sum(each.spent.seconds for each in tasks if each.task.phase == phase)


def _gpu(planned: Planned, each: TaskForecast) -> str:
    """Return the kind of GPU that a task runs on, as the cost model takes its speeds."""
    return slowest(planned.target.machines, planned.found.seated(each.task.seat).ranks).name


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
