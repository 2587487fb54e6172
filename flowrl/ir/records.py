"""What programs hand around: records of values, flattened wherever they meet a graph."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import optree

from flowrl.errors import Location, ProgramError, nearest
from flowrl.ir.graph import Value

NAMESPACE = "flowrl"


class MissingFieldError(ProgramError, AttributeError):
    """A record was asked for a field that it doesn't have."""


class Fields:
    """Says which fields there are when asked for another."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = fields_of(self)
        raise MissingFieldError(
            f"{type(self).__name__} has no field `{name}`{nearest(name, known)}; "
            f"it has {', '.join(known)}",
            where=Location.of_caller().excerpt(),
            hint=f"`ops.record(batch, {name}=value)` makes a record that has it",
        )


@attrs.frozen(eq=False)
class Prompts(Fields):
    """Prompts. context: i32[prompt, context], token ids. rows: row[prompt], ids and columns."""

    context: Value
    rows: Value


@attrs.frozen(eq=False)
class Rollouts(Fields):
    """Sampled completions, several a prompt.

    Attributes:
        prompts: what was asked.
        tokens: i32[prompt, sample, token], with the end-of-sequence token if there is one.
        logprobs: f32[prompt, sample, token], of the distribution that was sampled from.
        mask: bool[prompt, sample, token], True on tokens that are trained.
        truncated: bool[prompt, sample], True where the token limit ended the sample.
        version: i32[prompt, sample], the number of updates of the model that sampled it.
        recomputed: f32[prompt, sample, token], the trainer's `logprobs`, in a corrected program.
    """

    prompts: Prompts
    tokens: Value
    logprobs: Value
    mask: Value
    truncated: Value
    version: Value
    recomputed: Value | None = None


@attrs.frozen(eq=False)
class Examples(Fields):
    """Texts to imitate. tokens: i32[example, token]. mask: bool[example, token], what to learn."""

    prompts: Prompts
    tokens: Value
    mask: Value


@attrs.frozen(eq=False)
class Pairs(Fields):
    """Preferences. tokens: i32[prompt, sample, token], two samples, the chosen one first."""

    prompts: Prompts
    tokens: Value
    mask: Value


class Record(Fields):
    """Named values on the same rows: `ops.record(rollouts, advantages=...)`.

    The fields are attributes: `record.advantages`.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._fields:
            return super().__getattr__(name)
        return self._fields[name]


class Buffer:
    """Rows that are carried from step to step; none at first.

    `replay: fl.Carry = fl.Carry(fl.Buffer())` is an argument that `ops.append` adds rows to. What
    they are follows from what is added.

    Args:
        name: of the argument.
        rows: the rows, oldest first, if they are known.
    """

    def __init__(self, name: str = "", rows: Any = None) -> None:
        self.name, self._rows = name, rows

    @property
    def empty(self) -> bool:
        """Whether nothing was added yet in this program."""
        return self._rows is None

    @property
    def rows(self) -> Any:
        """The rows, those of the steps before first: a record as the one that was added.

        Raises:
            ProgramError: nothing was added yet.
        """
        if self.empty:
            raise ProgramError(
                f"nothing is known of the rows of `{self.name or 'buffer'}` yet",
                where=Location.of_caller().excerpt(),
                hint="add those of this step first: "
                "`replay = ops.append(replay, batch, capacity=64)`",
            )
        return self._rows


DATA = {"Prompts": Prompts, "Examples": Examples, "Pairs": Pairs}
"""The data types that a program's argument may be annotated with."""

RECORDS = (Rollouts, Examples, Pairs, Record)
"""What has prompts, tokens and a mask."""


def shown(x: Any) -> str:
    """Return how a message names what was given: the type of a value, or the Python class."""
    return str(x.type) if isinstance(x, Value) else type(x).__name__


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name, nested ones not flattened."""
    if isinstance(record, Record):
        return dict(record._fields)
    fields = {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}
    return {name: x for name, x in fields.items() if x is not None}


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


def leaf_names(tree: Any, under: str = "") -> list[str]:
    """Return a dotted name for each leaf, `prompts.context`, below the name `under`."""
    paths = optree.tree_paths(tree, namespace=NAMESPACE)
    above = [under] if under else []
    return [".".join([*above, *map(str, path)]) for path in paths]


def same_structure(a: Any, b: Any) -> bool:
    """Return whether two trees differ in their leaves only."""
    specs = [optree.tree_structure(tree, namespace=NAMESPACE) for tree in (a, b)]
    return bool(specs[0] == specs[1])
