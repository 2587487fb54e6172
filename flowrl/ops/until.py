"""Dynamic sampling: draw prompts until enough of their groups are kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from flowrl.errors import Location, ProgramError
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Value
from flowrl.ir.records import Buffer, Prompts, flatten, leaf_names, shown
from flowrl.ir.trace import bind, builder_of, trace_region
from flowrl.ir.types import DType, SelectionType, TensorType
from flowrl.ops.buffer import carried_rows, refilled
from flowrl.ops.control import SampleUntil
from flowrl.ops.data import fresh_axes
from flowrl.ops.expect import at_least_one, expect, one_of, outside_loss, refuse
from flowrl.ops.flow import numbered

T = TypeVar("T")


def sample_until(
    draw: Callable[[Prompts], T],
    keep: Callable[[T], Value],
    prompts: Prompts,
    *,
    groups: int | None = None,
    rounds: int,
    shortfall: str = "error",
    surplus: Buffer | None = None,
    capacity: int = 0,
) -> tuple[T, Any, Value]:
    """Draw prompts, round after round, until enough groups are kept.

    Args:
        draw: what is made of the prompts of one round: rollouts and rewards, on their prompts.
        keep: bool[prompt] of what `draw` returned, such as `ops.has_signal` of its rewards.
        prompts: those of the first round; later rounds take as many more rows of the data.
        groups: how many groups the batch has; None: as many as `prompts`.
        rounds: how often to draw at the most.
        shortfall: "error" stops the run if groups are missing then; "accept" goes on with fewer.
        surplus: a carried buffer of groups that steps before have left over: the first of the
            batch. One round is drawn in any case.
        capacity: how many groups may be left over to the next step, the last ones; 0 for none.

    Returns:
        The batch of the first `groups` kept groups, the surplus of the last round (as the buffer
        to carry on, if there is one), and i32[], the number of prompts drawn. When it runs,
        EngineError: fewer groups than asked for.
        The mean of rewards that `draw` scores and returns is a metric, over the batch.

    Source: dynamic sampling, Yu et al. 2025, arXiv:2503.14476, sec. 3.2.
    """
    expect("sample_until", "prompts", prompts, Prompts)
    if groups is not None:
        at_least_one("sample_until", "groups", groups, "groups counts prompts")
    at_least_one("sample_until", "rounds", rounds, "the first draw is a round too")
    one_of("sample_until", "shortfall", shortfall, ("error", "accept"))
    _check_surplus(surplus, capacity)
    builder = builder_of([prompts.rows], "sample_until")
    outside_loss("sample_until", builder)
    leaves, unflatten = flatten(prompts)
    pairs = SelectionType(fresh_axes(builder, leaves, "sample_until"))
    trees: list[T] = []
    scored: dict[str, Value] = {}

    def build(inner: GraphBuilder) -> list[tuple[str, Value]]:
        named = zip(leaf_names(prompts, "prompts"), leaves, strict=True)
        inputs = [inner.input(name, pairs.rename(leaf.type)) for name, leaf in named]
        inner.follow(inputs)
        trees.append(draw(unflatten(inputs)))
        scored.update(inner.rewards)
        kept = _check_keep(inner, keep(trees[0]))
        names = leaf_names(trees[0])
        return [("keep", kept), *zip(numbered(names), flatten(trees[0])[0], strict=True)]

    hint = "use the prompts that `draw` gets: each round has its own"
    graph, captured = trace_region("draw", build, builder, {old: hint for old, _ in pairs.axes})
    values = [value for _, value in graph.outputs]
    batch, rest = (fresh_axes(builder, values, "sample_until", whole=True) for _ in range(2))
    number = builder.number("draw")
    source = _data_input(builder, prompts)
    left = carried_rows("sample_until", surplus, trees[0]) if surplus and capacity else []
    made, tree = flatten(trees[0])
    places = _places(scored, made)
    told = tuple((name, place) for name, place in places if len(made[place].axes) == 2)
    op = SampleUntil(
        graph, source, rounds, shortfall, batch, rest, groups, number, capacity, len(left), told
    )
    results = bind(op, *left, *leaves, *captured)
    middle = len(results) // 2
    for name, place in places:
        builder.report(name, results[place])
    builder.follow(results)
    first, others, drawn = tree(results[:middle]), tree(results[middle:-1]), results[-1]
    if surplus is None:
        return first, others, drawn
    return first, refilled(surplus, others) if capacity else surplus, drawn


def _check_surplus(surplus: Any, capacity: Any) -> None:
    if surplus is not None:
        expect("sample_until", "surplus", surplus, Buffer)
    if not isinstance(capacity, int) or capacity < 0 or (capacity and surplus is None):
        refuse(
            "sample_until",
            f"`capacity` must be an integer of at least 0, with a `surplus`; got {capacity!r}",
            "carry the groups that are left over: `surplus: fl.Carry = fl.Carry(fl.Buffer())`",
        )


def _places(scored: Mapping[str, Value], made: Sequence[Value]) -> list[tuple[str, int]]:
    """Return the rewards that `draw` scored and returned: names, and places in what it made."""
    return [
        (name, place)
        for name, rewards in scored.items()
        for place, value in enumerate(made)
        if value is rewards
    ]


def _data_input(builder: GraphBuilder, prompts: Prompts) -> str:
    """Return the name of the program's argument that further rows are drawn from."""
    names = {id(value): name for name, value in builder.root.inputs}
    name = names.get(id(prompts.rows), "").removesuffix(".rows")
    if name or builder.root.concrete:
        return name
    raise ProgramError(
        "sample_until: `prompts` must be a data argument of the program, "
        f"from which further rows can be drawn; got {prompts.rows.type} made in it",
        where=Location.of_caller().excerpt(),
        made=builder.made_here(prompts.rows),
        hint="hand it the argument itself, and choose rows by `keep`",
    )


def _check_keep(inner: GraphBuilder, kept: Any) -> Value:
    type = kept.type if isinstance(kept, Value) else None
    if isinstance(type, TensorType) and type.dtype is DType.BOOL and len(type.axes) == 1:
        return kept  # type: ignore[no-any-return]
    raise ProgramError(
        f"sample_until: `keep` must return bool[prompt]; got {shown(kept)}",
        where=Location.of_caller().excerpt(),
        made=inner.made_here(kept),
        hint="reduce over samples: `ops.has_signal(rewards)`",
    )
