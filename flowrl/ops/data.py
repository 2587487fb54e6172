"""Ops on rows: put values side by side, choose rows, join by row."""

from collections.abc import Sequence
from typing import Any, TypeVar

import attrs

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Op, Value
from flowrl.ir.records import RECORDS, Prompts, Record, fields_of, flatten, shown
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.trace import bind, builder_of
from flowrl.ir.types import Axis, DType, SelectionType, TensorType, Type, axes_of
from flowrl.ops.expect import expect

T = TypeVar("T")


@attrs.frozen
class Select(Op):
    """Choose the rows where a condition holds."""

    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)

    def infer(self, condition: Type) -> tuple[Type, ...]:
        """bool[prompt] or bool[prompt, sample] -> selection."""
        if not isinstance(condition, TensorType) or condition.dtype is not DType.BOOL:
            raise TypeRuleError(
                f"`where` must be bool[prompt] or bool[prompt, sample]; got {condition}",
                hint="compare first: `ops.select(rollouts, where=rewards > 0)`",
            )
        if not 1 <= len(condition.axes) <= 2 or condition.axes[-1].name == "token":
            raise TypeRuleError(
                f"`where` must choose prompts or samples; got {condition}",
                hint="tokens are left out by the mask, not by selection",
            )
        return (SelectionType(self.axes),)


@attrs.frozen
class Take(Op):
    """Return the selected rows of a value."""

    def infer(self, selection: Type, value: Type) -> tuple[Type, ...]:
        """selection, T[prompt, ...] -> T[prompt'2, ...]."""
        if not isinstance(selection, SelectionType) or not isinstance(value, TensorType):
            raise TypeRuleError(f"takes a selection and a tensor; got {selection} and {value}")
        return (selection.rename(value),)


@attrs.frozen
class Align(Op):
    """Bring rows into another order, by row id."""

    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)

    def infer(self, value: Type, rows: Type, to: Type) -> tuple[Type, ...]:
        """T[prompt'2, ...], row[prompt'2], row[prompt] -> T[prompt, ...]."""
        assert isinstance(value, TensorType)
        return (SelectionType(self.axes).rename(value),)


def record(base: Any, /, **fields: Value) -> Record:
    """Put values beside the fields of a record, on the same rows.

    Args:
        base: rollouts, examples, pairs or a record.
        fields: values whose first axis is that of `base`.

    Returns:
        A record of all: `ops.record(rollouts, advantages=a).advantages`.

    Raises:
        ProgramError: a value lies on other rows, or a name is taken.
    """
    expect("record", "base", base, *RECORDS)
    old = fields_of(base)
    first = _first_axis(base)
    for name, value in fields.items():
        if name in old:
            raise ProgramError(
                f"record: expected a new name; got `{name}`, which is a field already",
                where=Location.of_caller().excerpt(),
                hint=f"the fields are {', '.join(old)}: choose another name",
            )
        _check_rows(name, value, first)
    return Record({**old, **fields})


def select(x: T, *, where: Value) -> T:
    """Keep the rows where a condition holds.

    Args:
        x: a value or record with the axes of `where`.
        where: bool[prompt] or bool[prompt, sample]. Prompts that keep no sample go too.

    Returns:
        The same values on fresh axes: they don't mix with those before the selection.

    Raises:
        ProgramError: `where` isn't of that type, or `x` has other axes.
    """
    expect("select", "where", where, Value)
    builder = builder_of([where], "select")
    whole = len(where.axes) == 1
    pairs = fresh_axes(builder, [where, *flatten(x)[0]], "select", whole=whole)
    return take(builder, bind(Select(pairs), where)[0], x)


def take(builder: GraphBuilder, selection: Value, x: T) -> T:
    """Return the selected rows of every value of a record, on the selection's fresh axes."""
    assert isinstance(selection.type, SelectionType)
    leaves, unflatten = flatten(x)
    taken = [bind(Take(), selection, leaf)[0] for leaf in leaves]
    old, new = selection.type.axes[0]
    rows = builder.root.rows.get(old)
    if rows is not None:
        known = next((t for leaf, t in zip(leaves, taken, strict=True) if leaf is rows), None)
        builder.root.rows[new] = bind(Take(), selection, rows)[0] if known is None else known
    result: T = unflatten(taken)
    return result


def align(x: Value, *, to: Any) -> Value:
    """Bring a value of another rollout of the same rows into the order of `to`.

    Args:
        x: T[prompt'2, ...], each row at most once.
        to: rollouts, or another record with prompts, on `prompt`.

    Returns:
        T[prompt, ...], the value that `x` has for the same row of the data.

    Raises:
        ProgramError: `x` has no rows of the data. When it runs, EngineError: `x` lacks a row.

    Source: the greedy baseline of ReMax needs it (Li et al. 2023, arXiv:2310.10505).
    """
    expect("align", "x", x, Value)
    expect("align", "to", to, *RECORDS, Prompts)
    builder = builder_of([x], "align")
    rows = builder.root.rows.get(x.axes[0]) if x.axes else None
    prompts = to if isinstance(to, Prompts) else to.prompts
    if rows is None:
        raise ProgramError(
            f"align: {x.type} has no rows of the data to join by",
            where=Location.of_caller().excerpt(),
            hint="its first axis must be the prompts of a rollout",
        )
    loc, first = Location.of_caller(), (x.axes[0], prompts.rows.axes[0])
    fresh = [(axis, builder.axis(axis.name, "align", loc)) for axis in x.axes[1:]]
    return bind(Align((first, *fresh)), x, rows, prompts.rows)[0]


def fresh_axes(
    builder: GraphBuilder, values: Sequence[Value], made_by: str, *, whole: bool = False
) -> tuple[tuple[Axis, Axis], ...]:
    """Return a fresh axis for each axis of `values`, which must all have one first axis.

    `whole` says that a prompt keeps all its samples, or none.
    """
    loc = Location.of_caller()
    axes = axes_of(value.type for value in values)
    for value in values:
        if not value.axes or value.axes[0] != axes[0]:
            clash = f" ({value.axes[0].history()}; {axes[0].history()})" if value.axes else ""
            raise ProgramError(
                f"{made_by}: {value.type} lies on other rows than {values[0].type}{clash}",
                where=loc.excerpt(),
                hint="choose among values of the same rows; "
                "`ops.align(x, to=rollouts)` joins others",
            )
    pairs = tuple((axis, builder.axis(axis.name, made_by, loc)) for axis in axes)
    sizes = builder.root.sizes
    sizes.update({new: sizes[old] for old, new in pairs if whole and old in sizes})
    return pairs


def _check_rows(name: str, value: Any, first: Axis) -> None:
    axes = value.axes if isinstance(value, Value) else ()
    if axes[:1] != (first,):
        clash = f" ({first.history()}; {axes[0].history()})" if axes else ""
        raise ProgramError(
            f"record: field `{name}` must lie on the rows `{first}`; got {shown(value)}{clash}",
            where=Location.of_caller().excerpt(),
            hint="join rows of another order with `ops.align(x, to=rollouts)`; "
            "one number for all rows needs no record",
        )


def _first_axis(record: Any) -> Axis:
    return axes_of(leaf.type for leaf in flatten(record)[0])[0]
