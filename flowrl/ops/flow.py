"""Control flow, as in `lax`: scan over minibatches, cond."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Graph, Value
from flowrl.ir.records import Buffer, flatten, leaf_names, same_structure, shown
from flowrl.ir.trace import bind, builder_of, trace_region
from flowrl.ir.types import MinibatchesType, ModelType, f32
from flowrl.ops.control import Cond, Scan
from flowrl.ops.division import Batches
from flowrl.ops.expect import expect, metric_names, refuse

C = TypeVar("C")
T = TypeVar("T")


def scan(
    body: Callable[[C, Any], tuple[C, dict[str, Value]]], carry: C, xs: Batches
) -> tuple[C, dict[str, Value]]:
    """Run `body(carry, minibatch) -> (carry, statistics)` over minibatches, in order.

    Args:
        body: traced once. The minibatch has the fields of the record on fresh axes; outer values
            on the record's rows must be put in the record. Models change only through the carry.
        carry: models and values, handed from turn to turn; models are used up.
        xs: `ops.minibatches(...)` or `ops.microbatches(...)`.

    Returns:
        The last carry, and each statistic with an axis of turns, f32[turn].

    Raises:
        ProgramError: the carry changes its type or structure, or the body breaks a rule.
    """
    expect("scan", "xs", xs, Batches)
    builder = builder_of([xs.division], "scan")
    assert isinstance(xs.division.type, MinibatchesType)
    selection = xs.division.type.selection
    leaves, unflatten = _leaves("scan", carry)
    fields, record = flatten(xs.record)
    hint = "put it in the record: `ops.record(batch, name=value)`, and read `mb.name`"

    def build(inner: GraphBuilder) -> list[tuple[str, Value]]:
        names = leaf_names(carry, "carry")
        start = [inner.input(n, leaf.type) for n, leaf in zip(names, leaves, strict=True)]
        named = zip(leaf_names(xs.record, "mb"), fields, strict=True)
        rows = [inner.input(name, selection.rename(value.type)) for name, value in named]
        inner.follow(rows)
        end, stats = _pair(body(unflatten(start), record(rows)))
        out = _same_carry(carry, leaves, end)
        _check_statistics(inner, stats)
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
    if not isinstance(predicate, Value):
        raise ProgramError(
            f"cond: `predicate` must be bool[]; got {shown(predicate)}",
            where=Location.of_caller().excerpt(),
            hint="for what Python knows while tracing, Python's own `if` serves",
        )
    builder = builder_of([predicate], "cond")
    leaves, unflatten = _leaves("cond", operands)
    trees: list[Any] = []

    def build(function: Callable[..., Any]) -> Callable[[GraphBuilder], list[tuple[str, Value]]]:
        def region(inner: GraphBuilder) -> list[tuple[str, Value]]:
            args = [inner.input(f"operand.{i}", leaf.type) for i, leaf in enumerate(leaves)]
            trees.append(function(*unflatten(args)))
            out, _ = _leaves("cond", trees[-1])
            return list(zip(numbered(leaf_names(trees[-1])), out, strict=True))

        return region

    first, outer = trace_region("then", build(then), builder)
    second, other = trace_region("orelse", build(orelse), builder)
    _same_branches(trees, first, second)
    models = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf.type, ModelType))
    results = bind(Cond(first, second, models), predicate, *leaves, *outer, *other)
    result: T = flatten(trees[0])[1](results)
    return result


def _check_statistics(inner: GraphBuilder, stats: dict[str, Value]) -> None:
    metric_names("scan", stats)
    for name, value in stats.items():
        if value.type != f32():
            raise ProgramError(
                f"scan: statistic `{name}` must be f32[]; got {value.type}",
                where=Location.of_caller().excerpt(),
                made=inner.made_here(value),
                hint="reduce it: `ops.token_mean(x, mb.mask)`, or `x.mean()` of samples",
            )


def numbered(names: Sequence[str]) -> list[str]:
    """Return the names of a tree's leaves; the leaf that is the whole tree has none."""
    return [name or "value" for name in names]


def _leaves(op: str, tree: Any) -> tuple[list[Value], Callable[..., Any]]:
    """Return the values of a tree, numbers as constants, and what makes such a tree again."""
    leaves, unflatten = flatten(tree)
    if any(isinstance(leaf, Buffer) for leaf in leaves):
        refuse(
            op,
            "takes models, values, and records of them; got a buffer",
            "append to the buffer before or after; `ops.select(batch, where=...)` chooses what",
        )
    return [_as_value(leaf) for leaf in leaves], unflatten


def _as_value(leaf: Any) -> Value:
    return leaf if isinstance(leaf, Value) else Value.arithmetic.constant(leaf)


def _pair(result: Any) -> tuple[Any, dict[str, Value]]:
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result[0], {name: _as_value(value) for name, value in result[1].items()}
    raise ProgramError(
        f"scan: `body` must return (carry, statistics); got {shown(result)}",
        where=Location.of_caller().excerpt(),
        hint="`return (policy, critic), {'loss': loss}`; the statistics may be an empty dict",
    )


def _same_carry(carry: Any, before: Sequence[Value], end: Any) -> list[Value]:
    after, _ = _leaves("scan", end)
    types = [value.type for value in after]
    if same_structure(carry, end) and types == [value.type for value in before]:
        return after
    kinds = [", ".join(str(value.type) for value in values) for values in (before, after)]
    raise ProgramError(
        f"scan: `body` must return a carry as it got it, ({kinds[0]}); got ({kinds[1]})",
        where=Location.of_caller().excerpt(),
        hint="return the next version of every model and value of the carry, in the same places",
    )


def _same_branches(trees: Sequence[Any], first: Graph, second: Graph) -> None:
    types = [[value.type for _, value in graph.outputs] for graph in (first, second)]
    if not same_structure(*trees) or types[0] != types[1]:
        kinds = [", ".join(map(str, side)) for side in types]
        raise ProgramError(
            f"cond: both sides must return the same types; got ({kinds[0]}) and ({kinds[1]})",
            where=Location.of_caller().excerpt(),
            hint="return the same structure from both, a model as it came if nothing happens",
        )
