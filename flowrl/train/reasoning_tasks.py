"""The tasks of reasoning_gym that a run file names, looked up before anything is loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from flowrl.config.run_file import RunFile
from flowrl.data.query import split_query
from flowrl.data.reasoning import TASK, task_rows
from flowrl.data.spec import DataSpec
from flowrl.errors import DataError
from flowrl.rewards.resolve import TASKS, resolve
from flowrl.rewards.spec import RewardSpec


def check_tasks(run: RunFile) -> None:
    """Refuse a task that reasoning_gym doesn't have, and options that the task refuses.

    Where the package isn't installed, as it may be on other machines alone, nothing is known.

    Raises:
        DataError: with the run file's key and line.
    """
    if find_spec(TASKS) is None:
        return
    for key in (*run.data_keys().values(), *(["eval.data"] if run.eval else [])):
        _check_source(run, key)
    for name in run.reward.functions:
        if name not in run.reward.servers and name not in run.reward.models:
            _check_reward(run, f"reward.{name}")


def _check_source(run: RunFile, key: str) -> None:
    """Make the first row of a data input that is a task."""
    spec = run.structure(DataSpec, key)
    if spec.source.startswith(TASK):
        name, options = split_query(spec.source, spec.options)
        with _at(run, f"{key}.source"):
            next(task_rows(name.removeprefix(TASK), options), None)


def _check_reward(run: RunFile, key: str) -> None:
    """Make the scorers of a reward that are those of tasks."""
    spec = run.structure(RewardSpec, key)
    for function in spec.functions.values():
        if isinstance(function, str) and function.startswith(TASK):
            with _at(run, f"{key}.function"):
                resolve(function, spec.options, run.resolve("."))


@contextmanager
def _at(run: RunFile, key: str) -> Iterator[None]:
    """Give the errors of a task the place of the key that names it."""
    try:
        yield
    except DataError as error:
        raise error.told(f"`{key}`: {error.problem}", where=run.where(key)) from error
