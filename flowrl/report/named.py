"""Folders, files and functions that a run file names, looked up before anything is loaded.

What isn't here may be where the run is: a sentence says so. What is here and wrong is an error.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec

from flowrl.config.placement.used import judges_of
from flowrl.config.run_file import RunFile
from flowrl.data.reasoning import TASK
from flowrl.data.sources import Source
from flowrl.data.spec import DataSpec
from flowrl.data.tokenizer import is_hub_name
from flowrl.data.user import missing_file, user_sampler
from flowrl.errors import DataError, RewardError
from flowrl.ir.graph import Graph
from flowrl.ops.uses import uses_of
from flowrl.rewards.resolve import resolve
from flowrl.rewards.spec import RewardSpec


def check_models(run: RunFile, graph: Graph) -> Iterator[str]:
    """Check the models' folders; yield a sentence for each that is odd, or that isn't here.

    Raises:
        FlowrlError: a folder that is here is not of such a model; see `check_folders`.
    """
    read = (*uses_of(graph), *judges_of(run, graph))
    paths = {role: run.roles[role].path for role in read}
    here = {role for role, path in paths.items() if run.resolve(path).exists()}
    if here:
        from flowrl.train.folders import check_folders  # transformers takes seconds

        yield from check_folders(run, graph)
    for role, path in paths.items():
        if role not in here and not is_hub_name(path):
            yield _needed(run.model_key(role), f"folder `{path}`")


def check_sources(run: RunFile, specs: Mapping[str, DataSpec]) -> Iterator[str]:
    """Check sources and samplers of data, reading no row; yield a sentence for each not here.

    Args:
        run: the run file.
        specs: what it says of data, by dotted key.

    Raises:
        DataError: a file of Python hasn't the name or raises, or a source doesn't take its options.
    """
    folder = run.resolve(".")
    for key, spec in specs.items():
        source = Source.parse(spec.source, spec.options, spec.split, folder)
        yield from _here(run, f"{key}.source", source.lacks, source.found)
        if spec.exclude is not None:
            other = source.other(spec.exclude)
            yield from _here(run, f"{key}.exclude", other.lacks, other.found)
        if (sampler := spec.sampler) is not None:
            find = partial(user_sampler, sampler, folder)
            yield from _here(run, f"{key}.sampler", partial(missing_file, sampler, folder), find)


def _here(
    run: RunFile, key: str, lacks: Callable[[], str], find: Callable[[], object]
) -> Iterator[str]:
    """Find what a key names; yield a sentence if it, or a file that it reads, isn't here."""
    try:
        if missing := lacks():
            yield _needed(key, missing)
        else:
            find()
    except DataError as error:
        told, where = f"`{key}`: {error.problem}", run.where(key)
        if not _lacks(error.__cause__):
            raise error.told(told, where=where, made=[error.where]) from error
        yield f"{told}; a run needs it."


def check_functions(run: RunFile) -> Iterator[str]:
    """Import the functions of rewards; yield a sentence for each whose package isn't here.

    Raises:
        RewardError: there is no such file, module or function, or importing it fails.
    """
    for name in run.reward.functions:
        if name in run.reward.servers or name in run.reward.models:
            continue
        spec = run.structure(RewardSpec, f"reward.{name}")
        for function in spec.functions.values():
            if not isinstance(function, str) or function.startswith(TASK):
                continue
            if package := _absent(function):
                yield _needed(f"reward.{name}", f"package `{package}`")
                continue
            try:
                resolve(function, spec.options, run.resolve("."))
            except RewardError as error:
                if not _lacks(error.__cause__):
                    where = run.where(f"reward.{name}")
                    raise error.told(where=where, made=[error.where]) from error
                yield f"`reward.{name}`: {error.problem}; a run needs it."


def _absent(function: str) -> str:
    """Return the package of a `package.module:name` that isn't installed; "" if it is, or none."""
    source, _, attribute = function.rpartition(":")
    package = source.partition(".")[0]
    return package if attribute and not source.endswith(".py") and _is_absent(package) else ""


def _lacks(cause: BaseException | None) -> bool:
    """Tell whether Python that is here failed for a file or a package that isn't."""
    if isinstance(cause, ModuleNotFoundError):
        return _is_absent((cause.name or "").partition(".")[0])
    return isinstance(cause, FileNotFoundError)


def _is_absent(package: str) -> bool:
    """Tell whether a name can be a package's, and none has it."""
    return package.isidentifier() and package not in sys.modules and find_spec(package) is None


def _needed(key: str, what: str) -> str:
    return f"`{key}`: there is no {what} here; a run needs it."
