"""Rows from the user's Python: `path.py:name`."""

import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from flowrl.data.record import Found, RowError
from flowrl.errors import DataError, nearest


def user_rows(path: Path, attribute: str, name: str, options: Mapping[str, Any]) -> Found:
    """Yield the rows of an iterable or a sequence, or of what a function returns."""
    found = _load(path, attribute, name)
    if callable(found):
        found = _call(found, name, options)
    elif options:
        raise DataError(f"`{attribute}` is no function, so it takes no `options`", where=name)
    for number, row in enumerate(_iterate(found, name), start=1):
        where = f"{name}:{number}"
        if isinstance(row, Mapping):
            yield where, row
        else:
            problem = f"expected a dict with a key a column; got {type(row).__name__}"
            yield where, RowError("wrong type", problem, where=where)


def _load(path: Path, attribute: str, name: str) -> Any:
    if not path.is_file():
        raise DataError(f"there is no file {path}", where=name)
    loader = SourceFileLoader(f"flowrl_data_{path.stem}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None, "a loader makes a spec"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses and pickles look it up there
    loader.exec_module(module)
    if not hasattr(module, attribute):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise DataError(
            f"{path.name} has no `{attribute}`{nearest(attribute, public)}",
            where=name,
            hint=f"it has {', '.join(public)}" if public else "",
        )
    return getattr(module, attribute)


def _call(function: Any, name: str, options: Mapping[str, Any]) -> Any:
    """Call it; arguments that do not fit are an error before the call."""
    signature = inspect.signature(function)
    try:
        signature.bind(**options)
    except TypeError as error:
        problem = f"`options` do not fit {function.__name__}{signature}: {error}"
        raise DataError(problem, where=name) from error
    return function(**options)


def _iterate(found: Any, name: str) -> Iterator[Any]:
    if isinstance(found, Iterable) and not isinstance(found, str | Mapping):
        return iter(found)
    if hasattr(found, "__len__") and hasattr(found, "__getitem__") and not isinstance(found, str):
        return (found[index] for index in range(len(found)))
    raise DataError(
        f"expected rows; got {type(found).__name__}",
        where=name,
        hint="return a list or another iterable of dicts, or an object with "
        "`__len__` and `__getitem__`",
    )
