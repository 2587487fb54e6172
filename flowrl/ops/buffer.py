"""Rows that live longer than a step: replay, and what a step leaves over."""

from collections.abc import Mapping
from typing import Any

import attrs

from flowrl.ir.graph import Op, Value
from flowrl.ir.records import RECORDS, Buffer, flatten, leaf_names
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.trace import bind, builder_of
from flowrl.ir.types import Axis, SelectionType, TensorType, Type, of_any_step
from flowrl.ops.data import fresh_axes
from flowrl.ops.expect import at_least_one, expect, outside_loss, refuse


@attrs.frozen
class Append(Op):
    """Return rows after those of the steps before: the last `capacity` of all."""

    capacity: int
    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)

    def infer(self, earlier: Type, later: Type) -> tuple[Type, ...]:
        """T[prompt'2, ...], T[prompt, ...] -> T[prompt'3, ...]."""
        assert isinstance(earlier, TensorType)
        assert isinstance(later, TensorType)
        must_join(earlier, later)
        return (of_any_step(SelectionType(self.axes).rename(later)),)


def append(buffer: Buffer, batch: Any, *, capacity: int) -> Buffer:
    """Add rows to a carried buffer, which keeps the last `capacity` prompts.

    Args:
        buffer: an argument `replay: fl.Carry = fl.Carry(fl.Buffer())`, or what `append` returned.
        batch: rollouts, examples, pairs or a record, on [prompt, sample, token] or fewer.
        capacity: prompts, with all their samples.

    Returns:
        The buffer to return in the place of the argument. Its `rows` are a record like `batch` on
        fresh axes, oldest first. Their log-probabilities keep the model and temperature that
        they are of, and may be of older versions: a ratio to them corrects for that.

    Raises:
        ProgramError: `batch` is of another type than what the buffer has.

    Source: replay as a value carried by a pure step; used by PF-PPO, arXiv:2409.06957.
    """
    expect("append", "buffer", buffer, Buffer)
    expect("append", "batch", batch, *RECORDS)
    at_least_one("append", "capacity", capacity, "capacity counts prompts, with all their samples")
    leaves, unflatten = flatten(batch)
    outside_loss("append", builder_of(leaves, "append"))
    earlier = carried_rows("append", buffer, batch)
    pairs = fresh_axes(builder_of(leaves, "append"), leaves, "append")
    op = Append(capacity, pairs)
    results = [bind(op, old, new)[0] for old, new in zip(earlier, leaves, strict=True)]
    return refilled(buffer, unflatten(results))


def carried_rows(op: str, buffer: Buffer, like: Any) -> list[Value]:
    """Return the rows of a buffer, leaf by leaf, to which rows as those of `like` are added.

    Raises:
        ProgramError: the buffer has rows with other fields, or isn't carried.
    """
    leaves, names = flatten(like)[0], leaf_names(like)
    if not buffer.empty:
        known = dict(zip(leaf_names(buffer.rows), flatten(buffer.rows)[0], strict=True))
    else:
        known = dict(_first_rows(op, buffer, dict(zip(names, leaves, strict=True))))
    if list(known) != names:
        refuse(
            op,
            f"the buffer has the fields {', '.join(known)}; got {', '.join(names)}",
            "all that is added to one buffer must have the same fields: carry a second one",
        )
    return list(known.values())


def refilled(buffer: Buffer, rows: Any) -> Buffer:
    """Return a buffer that has these rows now."""
    leaves = flatten(rows)[0]
    builder_of(leaves, "append").follow(leaves)
    return Buffer(buffer.name, rows)


def _first_rows(op: str, buffer: Buffer, like: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return what a buffer brings from the steps before: inputs of the program."""
    builder = builder_of(list(like.values()), op)
    if not buffer.name and not builder.root.concrete:
        refuse(
            op,
            "this buffer isn't carried: its rows would be gone after the step",
            "make it an argument of the program: `replay: fl.Carry = fl.Carry(fl.Buffer())`",
        )
    fresh = SelectionType(fresh_axes(builder, list(like.values()), buffer.name or "buffer"))
    tensors = {n: x.type for n, x in like.items() if isinstance(x.type, TensorType)}
    types = {name: of_any_step(fresh.rename(type)) for name, type in tensors.items()}
    return builder.root.carried(buffer.name, types)


def must_join(earlier: TensorType, later: TensorType) -> None:
    """Check that rows may follow those that a buffer has.

    Raises:
        TypeRuleError: they have another dtype, other axes, or log-probabilities of elsewhere.
    """
    if _kind(earlier) != _kind(later):
        raise TypeRuleError(
            f"the buffer has {earlier}; got {later}",
            hint="all that is added to one buffer must be of one type: carry a second one",
        )


def _kind(type: TensorType) -> tuple[Any, ...]:
    """Return what the types of earlier and later rows must share."""
    return type.dtype, [axis.name for axis in type.axes], of_any_step(type).origin
