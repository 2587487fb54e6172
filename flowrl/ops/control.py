"""Control flow, as in `lax`: scan over minibatches, cond, sample_until."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Graph, Op, Value
from flowrl.ir.records import Prompts, flatten, leaf_names, same_structure
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.trace import bind, builder_of, trace_region
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
from flowrl.ops.data import fresh_axes

C = TypeVar("C")
T = TypeVar("T")


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
            raise TypeRuleError(f"takes minibatches; got {division}", hint="`ops.minibatches(batch)`")
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


def minibatches(batch: Any, *, sequences: int, epochs: int = 1, by: str = "group") -> Batches:
    """Divide a record into minibatches for `ops.scan`.

    Args:
        batch: rollouts, examples, pairs or a record, on [prompt, sample, token] or fewer.
        sequences: sequences a minibatch. They are divided evenly into
            ceil(all / sequences) minibatches.
        epochs: how often each row is seen; each epoch has its own order.
        by: "group" keeps the samples of a prompt together, "sequence" doesn't.

    Raises:
        ProgramError: sequences or epochs below 1, or another `by`.
    """
    if sequences < 1 or epochs < 1 or by not in ("group", "sequence"):
        raise ProgramError(
            f"minibatches: sequences and epochs must be at least 1 and by `group` or `sequence`; "
            f"got sequences={sequences}, epochs={epochs}, by={by!r}",
            where=Location.of_caller().excerpt(),
            hint="sequences counts samples, not prompts",
        )
    leaves = flatten(batch)[0]
    builder = builder_of(leaves, "minibatches")
    deepest = max(leaves, key=lambda leaf: len(leaf.type.axes))
    pairs = fresh_axes(builder, leaves, "minibatches")
    division = Minibatches(sequences, epochs, by, pairs, builder.root.number("draw"))
    return Batches(bind(division, deepest)[0], batch)


def scan(
    body: Callable[[C, Any], tuple[C, dict[str, Value]]], carry: C, xs: Batches
) -> tuple[C, dict[str, Value]]:
    """Run `body(carry, minibatch) -> (carry, statistics)` over minibatches, in order.

    Args:
        body: traced once. The minibatch has the fields of the record on fresh axes; outer values
            on the record's rows must be put in the record. Models change only through the carry.
        carry: models and values, handed from turn to turn; models are used up.
        xs: `ops.minibatches(...)`.

    Returns:
        The last carry, and each statistic with an axis of turns, f32[turn].

    Raises:
        ProgramError: the carry changes its type or structure, or the body breaks a rule.
    """
    builder = builder_of([xs.division], "scan")
    assert isinstance(xs.division.type, MinibatchesType)
    selection = xs.division.type.selection
    leaves, unflatten = flatten(carry)
    fields, record = flatten(xs.record)
    hint = "put it in the record: `ops.record(batch, name=value)`, and read `mb.name`"

    def build(inner: GraphBuilder) -> list[tuple[str, Value]]:
        names = [f"carry.{name}" for name in leaf_names(carry)]
        start = [inner.input(n, leaf.type) for n, leaf in zip(names, leaves, strict=True)]
        named = zip(leaf_names(xs.record), fields, strict=True)
        rows = [inner.input(f"mb.{n}", selection.rename(value.type)) for n, value in named]
        _follow(inner, rows)
        end, stats = _pair(body(unflatten(start), record(rows)))
        out = _same_carry(carry, leaves, end)
        return [*zip(names, out, strict=True), *((f"stats.{n}", v) for n, v in stats.items())]

    blocked = {old: hint for old, _ in selection.axes}
    graph, captured = trace_region("body", build, builder, blocked)
    loc = Location.of_caller()
    models = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf.type, ModelType))
    op = Scan(graph, len(leaves), models, builder.axis("turn", "scan", loc))
    results = bind(op, xs.division, *leaves, *fields, *captured)
    names = [name.removeprefix("stats.") for name, _ in graph.outputs[len(leaves) :]]
    return unflatten(results[: len(leaves)]), dict(zip(names, results[len(leaves) :], strict=True))


def cond(predicate: Value, then: Callable[..., T], orelse: Callable[..., T], *operands: Any) -> T:
    """Return `then(*operands)` if the predicate holds when it runs, else `orelse(*operands)`.

    Args:
        predicate: bool[].
        then: traced once.
        orelse: traced once; returns the same structure and types.
        operands: values and models; models are used up.

    Raises:
        ProgramError: the two return other types, or the predicate isn't bool[].
    """
    builder = builder_of([predicate], "cond")
    leaves, unflatten = flatten(operands)
    trees: list[Any] = []

    def build(function: Callable[..., Any]) -> Callable[[GraphBuilder], list[tuple[str, Value]]]:
        def region(inner: GraphBuilder) -> list[tuple[str, Value]]:
            args = [inner.input(f"operand.{i}", leaf.type) for i, leaf in enumerate(leaves)]
            trees.append(function(*unflatten(args)))
            out = [_as_value(leaf) for leaf in flatten(trees[-1])[0]]
            return list(zip(_numbered(leaf_names(trees[-1])), out, strict=True))

        return region

    first, outer = trace_region("then", build(then), builder)
    second, other = trace_region("orelse", build(orelse), builder)
    _same_branches(trees, first, second)
    models = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf.type, ModelType))
    results = bind(Cond(first, second, models), predicate, *leaves, *outer, *other)
    result: T = flatten(trees[0])[1](results)
    return result


def sample_until(
    draw: Callable[[Prompts], T],
    keep: Callable[[T], Value],
    prompts: Prompts,
    *,
    groups: int,
    rounds: int,
    shortfall: str = "error",
) -> tuple[T, T, Value]:
    """Draw prompts, round after round, until enough groups are kept.

    Args:
        draw: what is made of the prompts of one round: rollouts and rewards, on their prompts.
        keep: bool[prompt] of what `draw` returned.
        prompts: those of the first round; later rounds take as many more rows of the data.
        groups: how many groups the batch has.
        rounds: how often to draw at the most.
        shortfall: "error" stops the run if groups are missing then; "accept" goes on with fewer.

    Returns:
        The batch of the first `groups` kept groups, the surplus of the last round, and i32[], the
        number of prompts drawn. When it runs, EngineError: fewer groups than asked for.

    Source: dynamic sampling, Yu et al. 2025, arXiv:2503.14476, sec. 3.2.
    """
    loc = Location.of_caller()
    if groups < 1 or rounds < 1 or shortfall not in ("error", "accept"):
        raise ProgramError(
            f"sample_until: groups and rounds must be at least 1 and shortfall `error` or "
            f"`accept`; got groups={groups}, rounds={rounds}, shortfall={shortfall!r}",
            where=loc.excerpt(),
            hint="groups counts prompts",
        )
    builder = builder_of([prompts.rows], "sample_until")
    leaves, unflatten = flatten(prompts)
    pairs = SelectionType(fresh_axes(builder, leaves, "sample_until"))
    trees: list[T] = []

    def build(inner: GraphBuilder) -> list[tuple[str, Value]]:
        named = zip(leaf_names(prompts), leaves, strict=True)
        inputs = [inner.input(f"prompts.{n}", pairs.rename(leaf.type)) for n, leaf in named]
        _follow(inner, inputs)
        trees.append(draw(unflatten(inputs)))
        kept = keep(trees[0])
        names = leaf_names(trees[0])
        return [("keep", kept), *zip(_numbered(names), flatten(trees[0])[0], strict=True)]

    hint = "use the prompts that `draw` gets: each round has its own"
    graph, captured = trace_region("draw", build, builder, {old: hint for old, _ in pairs.axes})
    values = [value for _, value in graph.outputs]
    batch, surplus = (fresh_axes(builder, values, "sample_until") for _ in range(2))
    number = builder.root.number("draw")
    op = SampleUntil(graph, groups, rounds, shortfall, batch, surplus, number)
    results = bind(op, *leaves, *captured)
    middle = len(results) // 2
    _follow(builder, results)
    tree = flatten(trees[0])[1]
    return tree(results[:middle]), tree(results[middle:-1]), results[-1]


def _follow(builder: GraphBuilder, values: Sequence[Value]) -> None:
    """Remember the rows among values, for joins by row."""
    for value in values:
        if isinstance(value.type, TensorType) and value.type.dtype is DType.ROW:
            builder.root.rows[value.type.axes[0]] = value


def _next(type: Type) -> Type:
    if isinstance(type, ModelType):
        return attrs.evolve(type, version=type.version + 1)
    return type


def _stacked(type: Type, turn: Axis) -> TensorType:
    if type != f32():
        raise TypeRuleError(f"a statistic must be f32[]; got {type}", arg=None, hint="reduce it")
    return f32(turn)


def _numbered(names: Sequence[str]) -> list[str]:
    return [name or "value" for name in names]


def _as_value(leaf: Any) -> Value:
    return leaf if isinstance(leaf, Value) else Value.arithmetic.unary("constant", leaf)


def _pair(result: Any) -> tuple[Any, dict[str, Value]]:
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result[0], {name: _as_value(value) for name, value in result[1].items()}
    raise ProgramError(
        f"scan: `body` must return (carry, statistics); got {type(result).__name__}",
        where=Location.of_caller().excerpt(),
        hint="`return (policy, critic), {'loss': loss}`; the statistics may be an empty dict",
    )


def _same_carry(carry: Any, before: Sequence[Value], end: Any) -> list[Value]:
    after = [_as_value(leaf) for leaf in flatten(end)[0]]
    types = [value.type for value in after]
    if same_structure(carry, end) and types == [value.type for value in before]:
        return after
    shown = [", ".join(str(value.type) for value in values) for values in (before, after)]
    raise ProgramError(
        f"scan: `body` must return a carry as it got it, ({shown[0]}); got ({shown[1]})",
        where=Location.of_caller().excerpt(),
        hint="return the next version of every model and value of the carry, in the same places",
    )


def _same_branches(trees: Sequence[Any], first: Graph, second: Graph) -> None:
    types = [[value.type for _, value in graph.outputs] for graph in (first, second)]
    if not same_structure(*trees) or types[0] != types[1]:
        shown = [", ".join(map(str, side)) for side in types]
        raise ProgramError(
            f"cond: both sides must return the same types; got ({shown[0]}) and ({shown[1]})",
            where=Location.of_caller().excerpt(),
            hint="return the same structure from both, a model as it came if nothing happens",
        )
