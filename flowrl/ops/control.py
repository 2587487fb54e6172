"""The op kinds of control flow; `flowrl.ops.flow` and `flowrl.ops.until` have the functions."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import attrs

from flowrl.ir.graph import UNPLACED, Graph, Op, Value
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
    of_any_step,
)
from flowrl.ops.buffer import must_join


class ControlOp(Op):
    """An op whose nested graphs the controller walks, each node in its own pool.

    It moves nothing: arguments are handed in, and results handed out, where they are.
    """

    first: ClassVar[int] = 1
    """The number of the first argument that is handed in."""

    def handed_in(self, region: str, args: Sequence[Value]) -> tuple[Value, ...]:
        """Return the arguments that are the inputs of a nested graph, in their order."""
        graph = self.regions()[region]
        own = len(graph.inputs) - graph.captures()
        return (*args[self.first : self.first + own], *self.captured(region, tuple(args)))

    @abstractmethod
    def handed_out(self) -> Sequence[Value]:
        """Return the values of a nested graph that are the results."""

    def pools_of_outputs(self, region: str) -> Sequence[str]:
        """Return where the outputs of a nested graph must be; "" is anywhere."""
        return [UNPLACED] * len(self.regions()[region].outputs)

    def result_pool(self, index: int, pool: str) -> str:
        """Return where the nested graph makes the result."""
        return self.handed_out()[index].pool or pool


@attrs.frozen
class Scan(ControlOp):
    """Run `body` once for each minibatch, handing a carry from turn to turn."""

    body: Graph
    carry: int = attrs.field(repr=False)
    models: tuple[int, ...] = attrs.field(repr=False)
    turn: Axis = attrs.field(repr=False)

    def consumed(self, count: int) -> tuple[int, ...]:
        """The models of the carry."""
        return tuple(1 + index for index in self.models)

    def handed_out(self) -> Sequence[Value]:
        """The carry of the last turn, and the statistics of all."""
        return [value for _, value in self.body.outputs]

    def pools_of_outputs(self, region: str) -> Sequence[str]:
        """The carry ends a turn where it began it."""
        start = [value.pool for _, value in self.body.inputs[: self.carry]]
        return start + [UNPLACED] * (len(self.body.outputs) - self.carry)

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
class Cond(ControlOp):
    """Run one of two graphs."""

    then: Graph
    orelse: Graph
    models: tuple[int, ...] = attrs.field(repr=False)

    def consumed(self, count: int) -> tuple[int, ...]:
        """The models among the operands."""
        return tuple(1 + index for index in self.models)

    def handed_out(self) -> Sequence[Value]:
        """What `then` returns."""
        return [value for _, value in self.then.outputs]

    def pools_of_outputs(self, region: str) -> Sequence[str]:
        """What `orelse` returns is brought to where `then` has it."""
        if region == "orelse":
            return [value.pool for _, value in self.then.outputs]
        return super().pools_of_outputs(region)

    def infer(self, predicate: Type, *args: Type) -> tuple[Type, ...]:
        """bool[], operands, captured -> what both graphs return."""
        if predicate != TensorType(DType.BOOL):
            raise TypeRuleError(
                f"`predicate` must be bool[]; got {predicate}",
                hint="reduce first: `(rewards.mean() > 0.5)`; per element use `ops.where`",
            )
        return tuple(_next(value.type) for _, value in self.then.outputs)


@attrs.frozen
class SampleUntil(ControlOp):
    """Draw rows of the data until enough groups are kept."""

    draw: Graph
    source: str
    rounds: int
    shortfall: str
    batch_axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    surplus_axes: tuple[tuple[Axis, Axis], ...] = attrs.field(repr=False)
    groups: int | None = None
    """Those of a batch; None: as many as there are prompts in a round."""
    number: int = attrs.field(default=0, repr=False)
    capacity: int = 0
    carried: int = attrs.field(default=0, repr=False)
    scored: tuple[tuple[str, int], ...] = attrs.field(default=(), repr=False)
    """The rewards f32[prompt, sample] among what `draw` returns: name, and place after `keep`."""
    effect = True
    first = 0

    def handed_in(self, region: str, args: Sequence[Value]) -> tuple[Value, ...]:
        """The prompts of a round; not the rows left over before, which are the first arguments."""
        return super().handed_in(region, args[self.carried :])

    def handed_out(self) -> Sequence[Value]:
        """What `draw` returns, for batch and surplus; the count is where `keep` is."""
        keep, *drawn = (value for _, value in self.draw.outputs)
        return [*drawn, *drawn, keep]

    def result_names(self, count: int) -> tuple[str, ...]:
        """Batch and surplus under the names that `draw` returns, then `drawn`."""
        names = [name for name, _ in self.draw.outputs[1:]]
        return (*(f"batch.{n}" for n in names), *(f"surplus.{n}" for n in names), "drawn")

    def infer(self, *args: Type) -> tuple[Type, ...]:
        """Rows left over, Prompts, captured -> the batch, the surplus, i32[] prompts drawn."""
        types = [value.type for _, value in self.draw.outputs[1:]]
        batch, surplus = SelectionType(self.batch_axes), SelectionType(self.surplus_axes)
        tensors = [type for type in types if isinstance(type, TensorType)]
        for left, type in zip(args[: self.carried], tensors, strict=False):
            assert isinstance(left, TensorType)
            must_join(left, type)
        if self.carried:
            tensors = [of_any_step(type) for type in tensors]
        return (*map(batch.rename, tensors), *map(surplus.rename, tensors), i32())


def _next(type: Type) -> Type:
    if isinstance(type, ModelType):
        return attrs.evolve(type, version=type.version + 1)
    return type


def _stacked(type: Type, turn: Axis) -> TensorType:
    if type != f32():
        raise TypeRuleError(f"a statistic must be f32[]; got {type}", arg=None)
    return f32(turn)
