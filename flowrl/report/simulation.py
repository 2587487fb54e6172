"""Steps of a run file's plan, simulated: seconds beside the plan's, what pools do, what is lost."""

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from flowrl.compiler.planning import Planned
from flowrl.config.planned import plan_run
from flowrl.config.run_file import load_run_file
from flowrl.errors import RunFileError
from flowrl.report.files import writing
from flowrl.simulate import RESTART, Failures, Simulation, simulate
from flowrl.simulate.perfetto import write_trace

HOUR = 3600

MOST_FAILURES = 5
"""Expected failures in a step, up to which steps are simulated: one in 150 tries ends then."""


def simulation_text(
    file: str,
    sets: Sequence[str],
    steps: int = 20,
    seed: int = 0,
    trace: Path | None = None,
    failures: float | None = None,
    restart: float = RESTART,
) -> str:
    """Simulate the plan of a run file; return what came of it.

    Args:
        file: the run file.
        sets: `key=value`, laid over it.
        steps: how many.
        seed: of all that is drawn.
        trace: a file for the trace, if one is wanted.
        failures: hours between failures of one GPU; none by default.
        restart: seconds from a failure until the step is run again.

    Raises:
        FlowrlError: the run file or its program is wrong, nothing fits, or a number is.
    """
    _check(steps, failures, restart)
    traced, plan = plan_run(load_run_file(file, sets))
    failing = Failures(failures * HOUR, restart) if failures else None
    if failing is not None:
        _check_ends(plan, failing)
    done = simulate(plan, traced.inputs, steps, seed, failing)
    if trace is not None:
        with writing(trace, "name a file in a folder that exists: `--trace trace.json`"):
            write_trace(done, trace)
    return "\n".join(_lines(plan, done, seed, trace))


def _check(steps: int, failures: float | None, restart: float) -> None:
    """Refuse numbers that make no simulation."""
    wrong = [
        f"`--{name} {value:g}` must be a number above 0"
        for name, value in (("steps", steps), ("failures", failures), ("restart", restart))
        if value is not None and not 0 < value < inf
    ]
    if wrong:
        raise RunFileError("; ".join(wrong), hint="`flowrl simulate --help` says what they are")


def _check_ends(plan: Planned, failing: Failures) -> None:
    """Refuse failures of which hardly a step would end: each begins anew after every one."""
    expected = plan.found.seconds * plan.found.gpus / failing.mean_seconds
    if expected > MOST_FAILURES:
        raise RunFileError(
            f"`--failures {failing.mean_seconds / HOUR:g}` is {expected:.3g} failures in a step of "
            f"{plan.found.seconds:.3g} s on {plan.found.gpus} GPUs: almost none would finish",
            hint="give the hours between failures of one GPU: 50000 on H100s",
        )


def _lines(plan: Planned, done: Simulation, seed: int, trace: Path | None) -> Iterator[str]:
    count = len(done.steps)
    steps = "step" if count == 1 else "steps"
    yield f"{plan.graph.name} on {plan.target.machines}: {count} {steps} simulated with seed {seed}"
    low, middle, high = (_quantile(done.steps, q) for q in (0.1, 0.5, 0.9))
    yield (
        f"seconds a step: median {middle:.2f}, p10 {low:.2f}, p90 {high:.2f}; "
        f"the plan predicts {plan.found.seconds:.2f}"
    )
    for pool in plan.cluster.pools:
        if pool.gpus:
            workers = done.workers[pool.name]
            several = "1 worker" if workers == 1 else f"{workers} workers"
            yield (
                f"pool {pool.name}: {pool.gpus} GPUs, simulated as {several}, "
                f"busy {done.busy[pool.name]:.1%} of the time"
            )
    if done.deaths:
        yield (
            f"failures: {len(done.deaths)}; {done.lost:.0f} s lost of {done.elapsed:.0f} s "
            f"({done.lost / done.elapsed:.1%})"
        )
    if trace is not None:
        yield f"trace: {trace}, for https://ui.perfetto.dev"


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all don't pass."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
