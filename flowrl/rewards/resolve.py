"""From a reward's name in the run file to a function, and the columns that it takes."""

import functools
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from flowrl.errors import FlowrlError, RewardError, nearest
from flowrl.rewards.call import described, raised_at
from flowrl.user_file import import_file

TASKS = "reasoning_gym"
SCORER = "flowrl.data.reasoning:scorer"
"""`scorer(task, **options)` makes the reward function of a `reasoning_gym:TASK`."""

TEXTS = ("prompts", "completions")


@attrs.frozen
class Columns:
    """The parameters of a reward function, as columns of the data.

    Attributes:
        needed: without a default.
        optional: with one.
        rest: whether it takes every other column (`**columns`).
        texts: which of `prompts` and `completions` it takes.
    """

    needed: frozenset[str]
    optional: frozenset[str] = frozenset()
    rest: bool = False
    texts: tuple[str, ...] = TEXTS

    def of(self, present: Iterable[str]) -> tuple[str, ...]:
        """Return those of the row's columns that the function takes."""
        named = self.needed | self.optional
        return tuple(sorted(n for n in present if n in named or (self.rest and n not in TEXTS)))


def resolve(name: str, options: Mapping[str, Any], folder: Path) -> Callable[..., Any]:
    """Return the reward function called `name`, with its options bound.

    Args:
        name: `path.py:name`, `package.module:name` or `reasoning_gym:TASK`.
        options: keyword arguments; of the task's scorer for a task.
        folder: where a relative path starts.

    Raises:
        RewardError: there is no such file, module or function, or importing it fails.
    """
    source, _, attribute = name.rpartition(":")
    if not source or not attribute:
        raise RewardError(
            f"expected a reward function as `path.py:name`, `package.module:name` or "
            f"`{TASKS}:TASK`; got `{name}`"
        )
    if source == TASKS:
        scorer: Callable[..., Callable[..., Any]] = resolve(SCORER, {}, folder)
        return scorer(attribute, **options)
    module = _file(folder / source) if source.endswith(".py") else _module(source)
    return bind(name, _member(module, source, attribute), options)


@contextmanager
def naming(reward: str) -> Iterator[None]:
    """Say of an error that is raised inside which reward it is of.

    Raises:
        RewardError: the same.
    """
    try:
        yield
    except RewardError as error:
        error.reward = reward
        raise


def bind(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function with its options bound.

    Raises:
        RewardError: it has no such parameter.
    """
    takes = columns(function)
    known = sorted(takes.needed | takes.optional)
    unknown = [option for option in options if option not in known and not takes.rest]
    if unknown:
        raise RewardError(
            f"`{name}` has no parameter `{unknown[0]}`{nearest(unknown[0], known)}",
            hint=f"it has {_listed(known)}",
        )
    return functools.partial(function, **options) if options else function


def columns(function: Callable[..., Any]) -> Columns:
    """Return the columns that `function` takes; options bound to it are none of them.

    Raises:
        RewardError: it has parameters that cannot be passed by name.
    """
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = [p for p in _signature(function).parameters.values() if p.name not in bound]
    unnamed = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    if unnamed:
        raise RewardError(
            f"a reward function is called by name, but `{unnamed[0]}` of `{called(function)}` is "
            f"positional-only",
            hint="define it as `f(prompts, completions, **columns)`",
        )
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return Columns(
        needed=frozenset(p.name for p in named if p.default is p.empty) - set(TEXTS),
        optional=frozenset(p.name for p in named if p.default is not p.empty) - set(TEXTS),
        rest=rest,
        texts=tuple(t for t in TEXTS if rest or any(p.name == t for p in named)),
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:  # of some that are written in C, such as `max`
        raise RewardError(
            f"a reward function is called by name, but Python can't tell the parameters of "
            f"`{called(function)}`",
            hint="define one that calls it: `f(prompts, completions, **columns)`",
        ) from None


def name_of(function: Callable[..., Any]) -> str | None:
    """Return the name that leads another process to this very function, or nothing.

    There is none for what is made when the program runs (lambdas, closures, objects), nor for
    the functions of the script that is running: importing that would run it again.
    """
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file, attribute = getattr(module, "__file__", None), getattr(function, "__qualname__", "<")
    if module is None or file is None or module.__name__ == "__main__":
        return None
    try:
        found = operator.attrgetter(attribute)(module)
    except AttributeError:
        return None
    if found is not function:
        return None
    by_file = module.__name__ == file  # as `_file` imports it if its own name is taken
    return f"{file if by_file else module.__name__}:{attribute}"


def called(function: str | Callable[..., Any]) -> str:
    """Return a function's name, for messages."""
    if isinstance(function, str):
        return function
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


@functools.cache
def _file(path: Path) -> ModuleType:
    """Import a file, once; under its own name, where that is free, so that it can be pickled."""
    if not path.is_file():
        known = sorted(p.name for p in path.parent.glob("*.py") if p.is_file())
        raise RewardError(
            f"there is no file `{path}`{nearest(path.name, known)}",
            hint=f"the folder's Python files: {_listed(known)}",
        )
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    try:
        return import_file(path, None if taken else path.stem)
    except BaseException as error:
        raise _import_failed(path.name, error) from error


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _import_failed(name, error) from error
        raise RewardError(
            f"there is no module `{error.name}` for the reward function's `{name}`",
            hint="install it, or name a file: `path.py:name`",
        ) from error
    except BaseException as error:
        raise _import_failed(name, error) from error


def _import_failed(name: str, error: BaseException) -> FlowrlError | KeyboardInterrupt:
    if isinstance(error, FlowrlError | KeyboardInterrupt):
        return error
    return RewardError(f"importing `{name}` raised {described(error)}", where=raised_at(error))


def _member(module: ModuleType, source: str, attribute: str) -> Callable[..., Any]:
    try:
        function = operator.attrgetter(attribute)(module)
    except AttributeError:
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise RewardError(
            f"`{source}` has no function `{attribute}`{nearest(attribute, known)}",
            hint=f"it has {_listed(known)}",
        ) from None
    except BaseException as error:  # of a module's own `__getattr__`
        raise _import_failed(f"{source}:{attribute}", error) from error
    if not callable(function):
        raise RewardError(
            f"expected `{source}:{attribute}` to be a function, got {type(function).__name__}"
        )
    return function  # type: ignore[no-any-return]  # what it returns is checked at each call


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
