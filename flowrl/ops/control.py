"""The op kinds of control flow; `flowrl.ops.flow` has the functions."""

from typing import Any

import attrs

from flowrl.ir.graph import Graph, Op, Value
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.types import (
    Axis,
    DType,
    MinibatchesType,
    ModelType,
    SelectionType,
    TensorType,
    Type,
    f32,
    i32,
)


@attrs.frozen
class Minibatches(Op):
    """Divide rows into minibatches, shuffled anew in each epoch."""

    sequences: int
    epochs: int
    by: str
    axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    number: int = attrs.field(default=0, repr=False)

    def infer(self, tokens: Type) -> tuple[Type, ...]:
        """T[prompt, ...] -> minibatches[prompt'2, ...]."""
        if not isinstance(tokens, TensorType) or not tokens.axes:
            raise TypeRuleError(f"takes values with rows; got {tokens}")
        return (MinibatchesType(SelectionType(self.axes)),)


@attrs.frozen
class Batches:
    """What `minibatches` returns: the division and the record that is divided."""

    division: Value
    record: Any


@attrs.frozen
class Scan(Op):
    """Run `body` once for each minibatch, handing a carry from turn to turn."""

    body: Graph
    carry: int = attrs.field(repr=False)
    models: tuple[int, ...] = attrs.field(repr=False)
    turn: Axis = attrs.field(repr=False)

    def consumed(self, count: int) -> tuple[int, ...]:
        """The models of the carry."""
        return tuple(1 + index for index in self.models)

    def result_names(self, count: int) -> tuple[str, ...]:
        """The names that the body's outputs have."""
        return tuple(name for name, _ in self.body.outputs)

    def infer(self, division: Type, *args: Type) -> tuple[Type, ...]:
        """minibatches, carry, fields, captured -> carry, statistics with an axis of turns."""
        if not isinstance(division, MinibatchesType):
            raise TypeRuleError(
                f"takes minibatches; got {division}", hint="make them by `ops.minibatches(...)`"
            )
        outputs = [value.type for _, value in self.body.outputs]
        carry = [_next(type) for type in args[: self.carry]]
        return (*carry, *(_stacked(type, self.turn) for type in outputs[self.carry :]))


@attrs.frozen
class Cond(Op):
    """Run one of two graphs."""

    then: Graph
    orelse: Graph
    models: tuple[int, ...] = attrs.field(repr=False)

    def consumed(self, count: int) -> tuple[int, ...]:
        """The models among the operands."""
        return tuple(1 + index for index in self.models)

    def infer(self, predicate: Type, *args: Type) -> tuple[Type, ...]:
        """bool[], operands, captured -> what both graphs return."""
        if predicate != TensorType(DType.BOOL):
            raise TypeRuleError(
                f"`predicate` must be bool[]; got {predicate}",
                hint="reduce first: `(rewards.mean() > 0.5)`; per element use `ops.where`",
            )
        return tuple(_next(value.type) for _, value in self.then.outputs)


@attrs.frozen
class SampleUntil(Op):
    """Draw rows of the data until enough groups are kept."""

    draw: Graph
    source: str
    groups: int
    rounds: int
    shortfall: str
    batch_axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    surplus_axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    number: int = attrs.field(default=0, repr=False)
    effect = True

    def result_names(self, count: int) -> tuple[str, ...]:
        """Batch and surplus under the names that `draw` returns, then `drawn`."""
        names = [name for name, _ in self.draw.outputs[1:]]
        return (*(f"batch.{n}" for n in names), *(f"surplus.{n}" for n in names), "drawn")

    def infer(self, *args: Type) -> tuple[Type, ...]:
        """Prompts, captured -> the batch, the surplus, i32[] prompts drawn."""
        types = [value.type for _, value in self.draw.outputs[1:]]
        batch, surplus = SelectionType(self.batch_axes), SelectionType(self.surplus_axes)
        tensors = [type for type in types if isinstance(type, TensorType)]
        return (*map(batch.rename, tensors), *map(surplus.rename, tensors), i32())


CONTROL = (Scan, Cond, SampleUntil)
"""Ops whose nested graphs the controller walks, each node in its own pool."""


def _next(type: Type) -> Type:
    if isinstance(type, ModelType):
        return attrs.evolve(type, version=type.version + 1)
    return type


def _stacked(type: Type, turn: Axis) -> TensorType:
    if type != f32():
        raise TypeRuleError(f"a statistic must be f32[]; got {type}", arg=None)
    return f32(turn)
