"""What programs hand around: records of values, flattened wherever they meet a graph."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs
import optree

from flowrl.errors import Location, ProgramError, nearest
from flowrl.ir.graph import Value

NAMESPACE = "flowrl"
T = TypeVar("T")


@attrs.frozen(eq=False)
class Prompts:
    """Prompts. context: i32[prompt, context], token ids. rows: row[prompt], ids and columns."""

    context: Value
    rows: Value


@attrs.frozen(eq=False)
class Rollouts:
    """Sampled completions, several a prompt.

    Attributes:
        prompts: what was asked.
        tokens: i32[prompt, sample, token], with the end-of-sequence token if there is one.
        logprobs: f32[prompt, sample, token], of the distribution that was sampled from.
        mask: bool[prompt, sample, token], True on tokens that are trained.
        truncated: bool[prompt, sample], True where the token limit ended the sample.
        version: i32[prompt, sample], the number of updates of the model that sampled it.
    """

    prompts: Prompts
    tokens: Value
    logprobs: Value
    mask: Value
    truncated: Value
    version: Value


@attrs.frozen(eq=False)
class Examples:
    """Texts to imitate. tokens: i32[example, token]. mask: bool[example, token], what to learn."""

    prompts: Prompts
    tokens: Value
    mask: Value


@attrs.frozen(eq=False)
class Pairs:
    """Preferences. tokens: i32[prompt, sample, token], two samples, the chosen one first."""

    prompts: Prompts
    tokens: Value
    mask: Value


class Record:
    """Named values on the same rows: `ops.record(rollouts, advantages=...)`.

    The fields are attributes: `record.advantages`.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._fields:
            raise ProgramError(
                f"the record has no field `{name}`{nearest(name, self._fields)}; "
                f"it has {', '.join(self._fields)}",
                where=Location.of_caller().excerpt(),
                hint=f"add it where the record is made: `ops.record(..., {name}=...)`",
            )
        return self._fields[name]


DATA = {"Prompts": Prompts, "Examples": Examples, "Pairs": Pairs}
"""The data types that a program's argument may be annotated with."""


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name, nested ones not flattened."""
    if isinstance(record, Record):
        return dict(record._fields)
    return {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}


def _register(cls: type) -> None:
    def flatten(record: Any) -> tuple[Iterable[Any], tuple[str, ...], tuple[str, ...]]:
        fields = fields_of(record)
        return fields.values(), tuple(fields), tuple(fields)

    def unflatten(names: tuple[str, ...], children: Iterable[Any]) -> Any:
        fields = dict(zip(names, children, strict=True))
        return Record(fields) if cls is Record else cls(**fields)

    optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)


for _cls in (Prompts, Rollouts, Examples, Pairs, Record):
    _register(_cls)


def flatten(tree: Any) -> tuple[list[Any], Callable[[Iterable[Any]], Any]]:
    """Return the leaves of nested tuples, lists, dicts and records, and how to put them back."""
    leaves, spec = optree.tree_flatten(tree, namespace=NAMESPACE)
    return leaves, spec.unflatten


def leaf_names(tree: Any) -> list[str]:
    """Return a dotted name for each leaf: `prompts.context`."""
    paths = optree.tree_paths(tree, namespace=NAMESPACE)
    return [".".join(map(str, path)) for path in paths]


def same_structure(a: Any, b: Any) -> bool:
    """Return whether two trees differ in their leaves only."""
    specs = [optree.tree_structure(tree, namespace=NAMESPACE) for tree in (a, b)]
    return bool(specs[0] == specs[1])


def map_leaves(function: Callable[[Value], Value], tree: T) -> T:
    """Return the tree with `function` applied to each leaf."""
    mapped: T = optree.tree_map(function, tree, namespace=NAMESPACE)
    return mapped
