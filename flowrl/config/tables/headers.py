"""Every table of a run file by its header, such as `engines.<role>.generate`."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, get_args

import attrs

from flowrl.config.tables.models import RewardModelTable
from flowrl.config.tables.schema import RewardTable, Tables
from flowrl.config.toml.structure import OPEN_TO, Problem
from flowrl.config.toml.types import origin_of

NONE: Mapping[str, type] = MappingProxyType({})


def all_tables(classes: Mapping[str, type] = NONE) -> Iterator[tuple[str, type]]:
    """Yield each table's header and the class that checks it, in the order of a run file.

    Args:
        classes: the class behind a table that this package leaves open, by its header:
            `data`, `reward.<function>`, `reward.<server>`.
    """
    for field in attrs.fields(Tables):
        yield from _tables(_placeholder(field), field.type, classes)


def with_homes(problems: Iterable[Problem], hyperparameters: Collection[str] = ()) -> list[Problem]:
    """Return problems; the hint of an unknown key also names the tables that have one of its name.

    Args:
        problems: of any keys.
        hyperparameters: of the program, as far as they are known.
    """
    return [_with_homes(each, hyperparameters) if each.unknown else each for each in problems]


def _with_homes(problem: Problem, hyperparameters: Collection[str]) -> Problem:
    key = str(problem.path[-1])
    if problem.path[:-1] == ("reward",):  # where every other key names a reward
        hint = f'a reward is written `{key} = "path.py:function"`; {problem.hint}'
        return attrs.evolve(problem, hint=hint)
    own = f"`{key}` is a hyperparameter: [program]" if key in hyperparameters else ""
    found = " and ".join(_homes(key))
    others = f"`{key}` is a key of {found}" if found else ""
    parts = [own, others, problem.hint]
    if problem.path[0] == "program":  # more often it is of another program than of another table
        parts.reverse()
    hint = "; ".join(part for part in parts if part)
    return attrs.evolve(problem, hint=hint)


def _homes(key: str) -> list[str]:
    """Return the headers of the tables that have this key, but for those left open."""
    return [f"[{header}]" for header, cls in all_tables() if key in {f.name for f in keys_of(cls)}]


def keys_of(cls: type) -> "list[attrs.Attribute[Any]]":
    """Return the fields of a table's class that are values: no tables, no names of one's own."""
    return [
        field
        for field in attrs.fields(cls)
        if OPEN_TO not in field.metadata and _table_class(field.type) is None
    ]


def _tables(
    header: str, annotation: Any, classes: Mapping[str, type]
) -> Iterator[tuple[str, type]]:
    cls = classes.get(header) or _table_class(annotation)
    if cls is None:
        return
    yield header, cls
    if cls is RewardTable:
        yield "reward.<model>", RewardModelTable
        yield from _tables("reward.<server>", None, classes)
    for field in attrs.fields(cls):
        if _table_class(field.type) not in cls.__mro__:  # [optimizer.<role>] is as [optimizer]
            yield from _tables(f"{header}.{_placeholder(field)}", field.type, classes)


def _table_class(annotation: Any) -> "type | None":
    """Return the attrs class that an annotation such as `dict[str, PoolSpec]` holds."""
    parts = (annotation, *get_args(annotation))
    return next((part for part in parts if isinstance(part, type) and attrs.has(part)), None)


def _placeholder(field: "attrs.Attribute[Any]") -> str:
    """Return what stands in a header for the tables that a field holds."""
    is_open = OPEN_TO in field.metadata
    name = "role" if field.name == "models" else field.name.removesuffix("s")
    if is_open:
        return f"<{name}>"
    many = origin_of(field.type) is dict and _table_class(field.type) is not None
    return f"{field.name}.<{name}>" if many else field.name
