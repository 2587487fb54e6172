"""Tables into attrs classes, strictly: nothing is coerced, every problem has its key."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args

import attrs
from cattrs import (
    BaseValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.errors import AttributeValidationNote
from cattrs.gen import make_dict_structure_fn, mapping_structure_factory

from flowrl.config.toml.types import Rule, accepts, as_toml, describe, item_types, origin_of
from flowrl.errors import FlowrlError, nearest

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]
Table = dict[str, Any]
KeyPath = tuple[Any, ...]
"""A key, a string, with the tables above it; a number is a place in an array."""

NO_NULL = "TOML has no null"
"""The hint of a value that is null in the words of another language."""

NULLS = ("None", "none", "null", "nil")

OPEN_TO = "open to"
"""Metadata of a field that takes the keys its class doesn't know, if values are of this type."""


@attrs.frozen
class Problem:
    """What is wrong with one key, and the other keys that it contradicts."""

    path: KeyPath
    text: str
    hint: str = ""
    against: tuple[KeyPath, ...] = ()
    unknown: bool = False
    """Whether the key is one that its table doesn't have."""
    misfit: bool = False
    """Whether its value is of another type than the key's, or out of its range."""


class Invalid(Exception):
    """A table that doesn't fit its class."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(problem.text for problem in problems))


def structure(cls: type[T], value: object, path: KeyPath = ()) -> T:
    """Make a `cls`, an attrs class or any type of `flowrl.config.toml.types`, from a TOML value.

    Keys that `cls` doesn't know go to its `OPEN_TO` field, if it has one. An integer
    serves as a float; no other type serves as another.

    Raises:
        Invalid: unknown keys, missing keys, wrong types: all that there are.
    """
    try:
        return _CONVERTER.structure(value, cls)
    except Exception as error:
        raise Invalid(list(_problems(error, path, cls))) from error


def dotted(path: KeyPath) -> str:
    """Return `a.b[0].c`."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return "".join(parts).removeprefix(".")


def open_field(cls: Any) -> "attrs.Attribute[Any] | None":
    """Return the class's open field, if it has one."""
    return next((field for field in attrs.fields(cls) if OPEN_TO in field.metadata), None)


def unknown_key(path: KeyPath, known: Sequence[str]) -> Problem:
    """Return the problem of a key that its table doesn't have."""
    *above, key = path
    table = f"[{dotted(tuple(above))}]" if above else "the run file"
    return Problem(
        path,
        f"unknown key `{key}` in {table}{nearest(str(key), known)}",
        hint=f"the keys of {table} are {', '.join(known)}",
        unknown=True,
    )


class _Mismatch(ValueError):
    """A value of another type than its key's; the argument is the value."""


def _value(cls: Any, converter: Converter) -> Hook:
    make = cls if cls in (float, Path) else lambda value: value
    return _checked(cls, lambda value, _: make(value))


def _checked(cls: Any, inner: Hook) -> Hook:
    def hook(value: Any, _: Any) -> Any:
        if not accepts(cls, value):
            raise _Mismatch(value)
        return inner(value, cls)

    return hook


def _ruled(cls: Any, converter: Converter) -> Hook:
    base, *notes = get_args(cls)

    def hook(value: Any, _: Any) -> Any:
        result = converter.structure(value, base)
        if not all(rule.holds(result) for rule in notes if isinstance(rule, Rule)):
            raise _Mismatch(value)
        return result

    return hook


def _any_of(cls: Any, converter: Converter) -> Hook:
    members = [member for member in get_args(cls) if member is not type(None)]

    def hook(value: Any, _: Any) -> Any:
        fitting = next((member for member in members if accepts(member, value)), None)
        if fitting is None:
            raise _Mismatch(value)
        return converter.structure(value, fitting)

    return hook


def _array(cls: Any, converter: Converter) -> Hook:
    make = origin_of(cls)

    def hook(value: Any, _: Any) -> Any:
        result, errors = [], []
        for index, item_type in enumerate(item_types(cls, len(value))):
            try:
                result.append(converter.structure(value[index], item_type))
            except Exception as error:
                error.add_note(IterableValidationNote("", index, item_type))
                errors.append(error)
        if errors:
            raise IterableValidationError("", errors, cls)
        return make(result)

    return _checked(cls, hook)


def _mapping(cls: Any, converter: Converter) -> Hook:
    if not get_args(cls):
        return _checked(cls, lambda value, _: dict(value))
    concrete: Any = dict.__class_getitem__(get_args(cls))
    return _checked(cls, mapping_structure_factory(concrete, converter))


def _attrs_class(cls: Any, converter: Converter) -> Hook:
    inner = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True)
    rest = open_field(cls)
    if rest is None:
        return _checked(cls, inner)
    known = {field.name for field in attrs.fields(cls)} - {rest.name}
    kind = rest.metadata[OPEN_TO]

    def gather(value: Any, _: Any) -> Any:
        other = {k: v for k, v in value.items() if k not in known and isinstance(v, kind)}
        own = {k: v for k, v in value.items() if k not in other}
        return inner(own | {rest.name: other}, cls)

    return _checked(cls, gather)


def _problems(error: BaseException, path: KeyPath, cls: Any) -> Iterator[Problem]:
    """Yield the leaves of cattrs' tree of errors, each with its key."""
    if isinstance(error, BaseValidationError):
        for child in error.exceptions:
            yield from _problems(child, *_below(error.cl, child, path))
    elif isinstance(error, ForbiddenExtraKeysError):
        rest = open_field(error.cl)
        known = [field.name for field in attrs.fields(error.cl) if field != rest]
        yield from (unknown_key((*path, key), known) for key in sorted(error.extra_fields))
    elif isinstance(error, KeyError):
        table = f"[{dotted(path[:-1])}]" if path[:-1] else "the run file"
        yield Problem(path, f"{table} lacks the key `{path[-1]}`, {describe(cls)}")
    elif isinstance(error, _Mismatch):
        got = as_toml(error.args[0])
        hint = NO_NULL if error.args[0] in NULLS else ""
        text = f"`{dotted(path)}` must be {describe(cls)}; got {got}"
        yield Problem(path, text, hint, misfit=True)
    else:
        yield _refused(error, path)


def _refused(error: BaseException, path: KeyPath) -> Problem:
    """Return what a validator says of the table at `path`, or of a key in it that it names."""
    text, hint = str(error), ""
    if isinstance(error, FlowrlError):
        text, hint = error.problem, error.hint
    if named := re.match(r"['`](\w+)['`] ", text):  # "'batch' must be >= 1"
        path = (*path, named[1])
        return Problem(path, f"`{dotted(path)}` {text[named.end() :]}", hint, misfit=True)
    return Problem(path, f"`{dotted(path)}`: {text}", hint)


def _below(parent: Any, error: BaseException, path: KeyPath) -> tuple[KeyPath, Any]:
    """Return the key and the type that an error in the table at `path` belongs to."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, IterableValidationNote):
            return (*path, note.index), note.type
        if isinstance(note, AttributeValidationNote):
            rest = open_field(parent)
            is_open = rest is not None and rest.name == note.name
            return path if is_open else (*path, note.name), note.type
    return path, parent


def _strict_converter() -> Converter:
    """Return a converter that uses our rules alone; the last rule that fits a type is taken."""
    converter = Converter()
    rules: list[tuple[Callable[[Any], bool], Callable[[Any, Converter], Hook]]] = [
        (lambda cls: True, _value),
        (lambda cls: origin_of(cls) is Annotated, _ruled),
        (lambda cls: origin_of(cls) is Union, _any_of),
        (lambda cls: origin_of(cls) in (list, tuple), _array),
        (lambda cls: origin_of(cls) is dict, _mapping),
        (attrs.has, _attrs_class),
    ]
    for fits, make in rules:
        converter.register_structure_hook_factory(fits, make)
    for cls in (bool, int, float, str):  # cattrs looks for these before it looks at rules
        converter.register_structure_hook(cls, _value(cls, converter))
    return converter


_CONVERTER = _strict_converter()
