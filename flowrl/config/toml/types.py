"""The types that keys have: how they are said, what they accept, and their ranges."""

import math
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs
import tomlkit

Origin = Any
"""A class without its parameters: `list` for `list[int]`, `Literal` for `Literal["a"]`."""


@attrs.frozen
class Rule:
    """A condition on a key's value, in words that follow its type: "an integer of at least 1"."""

    text: str
    holds: Callable[[Any], bool]


Positive = Annotated[int, Rule("of at least 1", lambda n: n >= 1)]
Count = Annotated[int, Rule("of at least 0", lambda n: n >= 0)]
NotNegative = Annotated[float, Rule("of at least 0", lambda x: x >= 0)]
AboveZero = Annotated[float, Rule("above 0", lambda x: x > 0)]
Fraction = Annotated[float, Rule("from 0 to 1", lambda x: 0 <= x <= 1)]
Decay = Annotated[float, Rule("from 0 to below 1", lambda x: 0 <= x < 1)]
Mass = Annotated[float, Rule("above 0 and up to 1", lambda x: 0 < x <= 1)]

_SINGULAR = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Path: "a path",
    Any: "any value",
    object: "any value",
}
_PLURAL = {int: "integers", float: "numbers", str: "strings"}


def origin_of(cls: Any) -> Origin:
    """Return the class without its parameters; abstract containers as the concrete ones."""
    origin = get_origin(cls) or cls
    return {Sequence: list, Mapping: dict, types.UnionType: Union}.get(origin, origin)


def item_types(cls: Any, length: int) -> tuple[Any, ...]:
    """Return the type of each item of an array type with `length` items."""
    args = get_args(cls) or (Any,)
    if is_fixed(cls):
        return args
    return args[:1] * length


def is_fixed(cls: Any) -> bool:
    """Whether an array type says how many items it has, as `tuple[float, float]` does."""
    return origin_of(cls) is tuple and bool(get_args(cls)) and Ellipsis not in get_args(cls)


def accepts(cls: Any, value: object) -> bool:
    """Whether a TOML value fits a type; an array's items and a table's keys aren't looked at."""
    origin = origin_of(cls)
    if origin in (Any, object):
        return True
    if origin is Annotated:
        return accepts(get_args(cls)[0], value)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(cls))
    if origin is Union:
        return any(accepts(member, value) for member in get_args(cls))
    if origin is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if origin in (list, tuple):
        return isinstance(value, list) and (not is_fixed(cls) or len(value) == len(get_args(cls)))
    return type(value) is _toml_type(origin)


def describe(cls: Any) -> str:
    """Return a type in words: `an integer of at least 1`, `a list of strings`."""
    origin, args = origin_of(cls), get_args(cls)
    if origin is Annotated:
        return " ".join([describe(args[0]), *(r.text for r in args[1:] if isinstance(r, Rule))])
    if origin is Literal:
        return "one of " + ", ".join(as_toml(each) for each in args)
    if origin is Union:
        written = [member for member in args if origin_of(member) not in (type(None), Callable)]
        return " or ".join(describe(member) for member in written)
    if origin in (list, tuple):
        many = f"{len(args)} " if is_fixed(cls) else ""
        return f"a list of {many}{_plural(args[0])}" if args else "a list"
    if _toml_type(origin) is dict:
        return "a table"
    return _SINGULAR.get(origin, getattr(cls, "__name__", str(cls)))


def as_toml(value: object) -> str:
    """Return a value as one writes it in a run file, cut to 60 characters."""
    text = "a table" if isinstance(value, dict) else tomlkit.item(value).as_string()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plural(cls: Any) -> str:
    if origin_of(cls) is Annotated:
        base, *rules = get_args(cls)
        return " ".join([_plural(base), *(rule.text for rule in rules if isinstance(rule, Rule))])
    return _PLURAL.get(cls, "tables" if _toml_type(origin_of(cls)) is dict else "values")


def _toml_type(origin: Any) -> Any:
    """Return the type that tomllib gives to what `origin` is written as."""
    if origin is dict or (isinstance(origin, type) and attrs.has(origin)):
        return dict
    return str if origin is Path else origin
