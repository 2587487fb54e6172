"""The user's Python, `path.py:name`: rows, and the order in which they are drawn."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flowrl.data.record import Found, RowError
from flowrl.errors import DataError, nearest
from flowrl.user_file import import_file, locating

if TYPE_CHECKING:
    from flowrl.runtime.rows.rows import Row  # torch takes seconds

Sampler = Callable[[Sequence["Row"], int, int], Iterable[int]]
"""A user's order: (rows, epoch, seed) -> indices of rows."""

PYTHON_NAME = re.compile(r"(?P<path>.+\.py):(?P<attribute>\w+)")

OF_ROWS = (
    "return a list or another iterable of dicts, or an object with `__len__` and `__getitem__`"
)
OF_TABLES = (
    'return its rows: `table.to_dict("records")` of pandas, `table.to_dicts()` of polars, '
    "`table.to_pylist()` of Arrow"
)


def user_rows(name: str, options: Mapping[str, Any], folder: Path) -> Found:
    """Return the rows of an iterable or a sequence, or of what a function returns.

    The function is called when the first row is asked for.

    Raises:
        DataError: there is no such file or name, the options don't fit, its code raises, or it is
            an `async def`.
    """
    found = load(name, folder)
    if callable(found):
        _check_sync(found, name)
        with locating(_file(name, folder), DataError):
            _check_options(found, name, options)
    elif options:
        raise DataError("this is not a function, so it takes no `options`", where=name)
    else:
        _check_rows(found, name)
    return _rows(found, name, options, folder)


def _rows(found: Any, name: str, options: Mapping[str, Any], folder: Path) -> Found:
    with locating(_file(name, folder), DataError):
        rows = found(**options) if callable(found) else found
        for number, row in enumerate(_iterate(rows, name), start=1):
            where = f"{name}:{number}"
            if isinstance(row, Mapping):
                yield where, dict(row)  # one of the user's own class is read here
            else:
                problem = f"expected a dict with a key a column; got {type(row).__name__}"
                yield where, RowError("wrong type", problem, where=where)


def user_sampler(name: str, folder: Path) -> Sampler:
    """Return a sampler whose errors name its line.

    Raises:
        DataError: there is no such file or name, running the file raises, or it is no function of
            these three.
    """
    sampler = load(name, folder)
    _check_sampler(sampler, name)

    def order(rows: "Sequence[Row]", epoch: int, seed: int) -> list[int]:
        with locating(_file(name, folder), DataError):
            return list(sampler(rows, epoch, seed))

    return order


def _check_sampler(sampler: Any, name: str) -> None:
    """Refuse what is no function, and one that doesn't take what a sampler is called with."""
    if not callable(sampler):
        raise DataError(f"expected a function; got {type(sampler).__name__}", where=name)
    _check_sync(sampler, name)
    try:
        signature = inspect.signature(sampler)
    except ValueError:  # of some that are written in C
        return
    try:
        signature.bind((), 0, 0)
    except TypeError as error:
        problem = f"a sampler is called with (rows, epoch, seed), not {signature}: {error}"
        raise DataError(problem, where=name) from error


def _check_sync(function: Callable[..., Any], name: str) -> None:
    """Refuse an `async def`: what it returns is awaited by none."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise DataError(
            "expected a plain function; got an `async def`",
            where=name,
            hint="call it by another: `def f(...): return asyncio.run(...)`",
        )


def load(name: str, folder: Path) -> Any:
    """Return what `path.py:name` names; a relative path starts in `folder`.

    Raises:
        DataError: there is no such file or name, or running the file raises.
    """
    path, attribute = _file(name, folder), name.rpartition(":")[2]
    if not path.is_file():
        raise DataError(f"there is no file {path}", where=name)
    with locating(path, DataError):
        module = import_file(path)
        has = hasattr(module, attribute)
    if not has:
        known = [key for key, value in vars(module).items() if _is_own(key, value, module)]
        raise DataError(
            f"{path.name} has no `{attribute}`{nearest(attribute, known)}",
            where=name,
            hint=f"it has {', '.join(known)}" if known else "",
        )
    return getattr(module, attribute)


def missing_file(name: str, folder: Path) -> str:
    """Return which file of `path.py:name` isn't there; "" if it is.

    Raises:
        DataError: it is no such name.
    """
    return "" if _file(name, folder).is_file() else f"file `{name.rpartition(':')[0]}`"


def _file(name: str, folder: Path) -> Path:
    match = PYTHON_NAME.fullmatch(name)
    if match is None:
        raise DataError("expected `path.py:name`", where=name)
    return folder / Path(match["path"]).expanduser()


def _is_own(key: str, value: Any, module: ModuleType) -> bool:
    """Tell whether a name is public, and made in the module as far as one can see."""
    made_in = getattr(value, "__module__", module.__name__)
    public = not key.startswith("_") and not isinstance(value, ModuleType)
    return public and made_in == module.__name__


def _check_options(function: Any, name: str, options: Mapping[str, Any]) -> None:
    """Refuse arguments that do not fit, before the call."""
    signature = inspect.signature(function)
    try:
        signature.bind(**options)
    except TypeError as error:
        problem = f"`options` do not fit {function.__name__}{signature}: {error}"
        raise DataError(problem, where=name) from error


def _iterate(found: Any, name: str) -> Iterator[Any]:
    _check_rows(found, name)
    if isinstance(found, Iterable):
        return iter(found)
    return (found[index] for index in range(len(found)))


def _check_rows(found: Any, name: str) -> None:
    """Refuse what can't be gone through, or gives no rows: text, a dict's or a table's columns."""
    indexed = hasattr(found, "__len__") and hasattr(found, "__getitem__")
    table = hasattr(type(found), "columns")
    if not (isinstance(found, Iterable) or indexed) or table or isinstance(found, str | Mapping):
        problem = f"expected rows; got {type(found).__name__}"
        raise DataError(problem, where=name, hint=OF_TABLES if table else OF_ROWS)
