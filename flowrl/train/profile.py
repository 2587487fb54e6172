"""Profiles: the speeds that a run reaches on the machine at hand, for plans to predict by."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import attrs

from flowrl.config.run_file import RunFile, load_run_file
from flowrl.runtime.executor import Step
from flowrl.stages import Lowered
from flowrl.train.executors import opened
from flowrl.train.fit import Fit, fitted
from flowrl.train.predict import plan_as_run
from flowrl.train.prepare import lower

WARM_UP = 1
"""Steps that are run first and not measured: caches fill, kernels are chosen."""


def profile_run(path: str, sets: Sequence[str], steps: int, say: Callable[[str], None]) -> Fit:
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
        lowered = lower(run)
        planned = plan_as_run(run, lowered)
        return fitted(planned, lowered.graph, measured(run, lowered, steps, say))


def measured(run: RunFile, lowered: Lowered, steps: int, say: Callable[[str], None]) -> list[Step]:
    """Return steps of a run, without those that warmed it up."""
    with stepping(run, lowered, say) as step:
        return [step() for _ in range(steps)]


@contextmanager
def stepping(
    run: RunFile, lowered: Lowered, say: Callable[[str], None]
) -> Iterator[Callable[[], Step]]:
    """Open a run and warm it up; the function takes its next step. Nothing is evaluated or saved.

    Args:
        run: the run file.
        lowered: its program.
        say: is told what was opened.
    """
    run, numbers = attrs.evolve(run, eval=None), itertools.count()
    with opened(run, lowered, say) as ready:
        carry = ready.executor.first()

        def step() -> Step:
            nonlocal carry
            done = ready.executor.step(carry, ready.cursors, next(numbers))
            carry = done.carry
            return done

        for _ in range(WARM_UP):
            step()
        yield step
