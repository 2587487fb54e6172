"""The only two ways to make a graph: add nodes to a builder, or rewrite a graph."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, count
from typing import Any

from flowrl.errors import Location, ProgramError
from flowrl.ir.correction import Correction
from flowrl.ir.graph import CAPTURED, UNPLACED, Graph, Node, Op, Value, new_value
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.types import Axis, DType, ModelType, TensorType, Type

HAND_IN = (
    "hand the model in: `ops.scan(body, (model, ...), minibatches)` or "
    "`ops.cond(predicate, then, orelse, model)`"
)


class GraphBuilder:
    """Collects the nodes of one graph, checking each against its type rule as it is added.

    A builder with a parent builds a nested graph: values of the parent that it uses become
    extra inputs, in `captured`. `blocked` axes may not come in that way; it says why.
    """

    concrete = False
    """Whether values have their elements already, as those of a session do."""

    def __init__(
        self,
        name: str,
        parent: "GraphBuilder | None" = None,
        blocked: Mapping[Axis, str] | None = None,
    ) -> None:
        self.name, self.parent, self.blocked = name, parent, blocked or {}
        self.inputs: list[tuple[str, Value]] = []
        self.nodes: list[Node] = []
        self.made: dict[Value, Location | None] = {}
        self.captured: dict[Value, Value] = {}
        self.used_up: dict[Value, Location] = {}
        self.root: GraphBuilder = parent.root if parent else self
        self.counts: Counter[str] = Counter()
        self.rows: dict[Axis, Value] = {}
        """The `row[...]` value of each first axis, for joins by row."""
        self.rewards: dict[str, Value] = {}
        """Rewards by name; their means are metrics, whether the program returns them or not."""
        self.correction: Correction | None = None
        """The weights of the policy gradient, if the program is corrected."""
        self.sizes: dict[Axis, int] = {}
        """How many samples a prompt has, by the axis of samples, where that is known."""
        self.buffers: dict[str, dict[str, Value]] = {}
        """What each carried buffer brings from the steps before, by the name of its argument."""
        self.sampling: Mapping[str, Mapping[str, Any]] = {}
        """By role, where the program is silent, `temperature`, `top_p`, `top_k`, `min_tokens`."""
        self.reward_models: Collection[str] = ()
        """The rewards that models give, by name."""

    def axis(self, name: str, made_by: str, loc: Location | None) -> Axis:
        """Return a fresh axis."""
        return Axis(name, self.number(f"axis {name}") + 1, made_by, loc)

    def follow(self, values: Sequence[Value]) -> None:
        """Remember the rows of the data among values, for joins by row."""
        for value in values:
            if isinstance(value.type, TensorType) and value.type.dtype is DType.ROW:
                self.root.rows[value.axes[0]] = value

    def report(self, name: str, rewards: Value) -> None:
        """Make the mean of rewards a metric: `name`, then `name'2`, as axes are numbered."""
        names = chain([name], (f"{name}'{number}" for number in count(2)))
        self.rewards[next(free for free in names if free not in self.rewards)] = rewards

    def models_of(self, rewards: Sequence[str]) -> dict[str, Value]:
        """Return the model of each of these rewards that a model gives: an input of its name."""
        wanted = [name for name in rewards if name in self.root.reward_models]
        known = dict(self.root.inputs)
        return {n: known[n] if n in known else self.root.input(n, ModelType(n)) for n in wanted}

    def number(self, kind: str) -> int:
        """Return how often this was called for `kind`, in the whole program."""
        self.root.counts[kind] += 1
        return self.root.counts[kind] - 1

    def input(self, name: str, type: Type, pool: str = UNPLACED) -> Value:
        """Add an input and return its value."""
        value = new_value(type, pool)
        self.inputs.append((name, value))
        self.made[value] = None
        return value

    def carried(self, name: str, types: Mapping[str, Type]) -> Mapping[str, Value]:
        """Return the rows of a buffer before this step: inputs of the program, once known."""
        if name not in self.buffers:
            made = {leaf: self.input(f"{name}.{leaf}", type) for leaf, type in types.items()}
            self.buffers[name] = made
        return self.buffers[name]

    def add(
        self, op: Op, args: Sequence[Value], loc: Location, pool: str = UNPLACED
    ) -> tuple[Value, ...]:
        """Append a node and return its results.

        Raises:
            ProgramError: the op's type rule rejects the arguments, or one is used up.
        """
        args = [self.resolve(arg, op.name, loc) for arg in args]
        try:
            types = op.infer(*(arg.type for arg in args))
        except TypeRuleError as rule:
            raise self._explain(op, rule, args, loc) from None
        return self._add_typed(op, args, types, loc, pool)

    def _add_typed(
        self, op: Op, args: Sequence[Value], types: Sequence[Type], loc: Location, pool: str
    ) -> tuple[Value, ...]:
        """Append a node whose results have these types."""
        self._consume(op, args, loc)
        results = tuple(new_value(t, op.result_pool(i, pool)) for i, t in enumerate(types))
        return self._append(Node(op, tuple(args), results, loc, pool))

    def _append(self, node: Node) -> tuple[Value, ...]:
        self.nodes.append(node)
        self.made.update(dict.fromkeys(node.results, node.loc))
        return node.results

    def resolve(self, value: Value, reader: str, loc: Location) -> Value:
        """Return `value` as this graph knows it, capturing it from the parent if it is there.

        Raises:
            ProgramError: it is used up, or out of reach; `reader` and `loc` say who wants it.
        """
        if value in self.used_up:
            raise ProgramError(
                f"{reader}: this version of `{_role(value)}` is used up: "
                "an update has made the next version of it",
                where=loc.excerpt(),
                made=("it was used up here:", self.used_up[value].excerpt()),
                hint="use the model that the update returned, "
                "or keep a copy before with `ops.snapshot(model)`",
            )
        if value in self.made:
            return value
        if value in self.captured:
            return self.captured[value]
        if self.parent is None:
            raise ProgramError(
                f"{reader}: expected a value of this program; got {value.type} of another "
                "program, or from inside a loss or a scan's body",
                where=loc.excerpt(),
                hint="hand it in as an argument, or out as a result: a value lives only in the "
                "function that makes it and in those inside",
            )
        outer = self.parent.resolve(value, reader, loc)
        self._check_blocked(outer, reader, loc)
        self.captured[value] = self.input(f"{CAPTURED}{len(self.captured)}", outer.type)
        return self.captured[value]

    def finish(
        self, outputs: Sequence[tuple[str, Value]], params: Mapping[str, Any] | None = None
    ) -> Graph:
        """Return the graph built so far.

        Raises:
            ProgramError: a model was updated and its new version goes nowhere.
        """
        kept = {value for _, value in outputs}
        for node in self.nodes:
            for value in node.results if node.op.consumed(len(node.args)) else ():
                if isinstance(value.type, ModelType) and value not in kept | set(self.used_up):
                    raise ProgramError(
                        f"{node.op.name} makes a new version of `{_role(value)}` "
                        f"that `{self.name}` doesn't return: the update would be lost",
                        where=node.loc.excerpt(),
                        hint="return the updated model; a model that isn't returned stays frozen",
                    )
        shown = tuple((params or {}).items())
        return Graph(self.name, tuple(self.inputs), tuple(self.nodes), tuple(outputs), shown)

    def give_back(self, value: Value, loc: Location) -> Value:
        """Return an output of a nested graph as this graph knows it.

        Raises:
            ProgramError: it is a model that wasn't handed in: then two values would be one model.
        """
        mine = self.resolve(value, self.name, loc)
        model = isinstance(mine.type, ModelType) and not mine.type.snapshot
        if model and any(mine is captured for captured in self.captured.values()):
            raise ProgramError(
                f"`{self.name}` returns `{_role(mine)}`, which comes from outside of it",
                where=loc.excerpt(),
                hint=HAND_IN,
            )
        return mine

    def made_at(self, value: Value) -> Location | None:
        """Return where a value of this graph, or what it was captured from, was made."""
        outer = next((out for out, mine in self.captured.items() if mine is value), None)
        if outer is not None and self.parent is not None:
            return self.parent.made_at(outer)
        return self.made.get(value)

    def made_here(self, value: Any, intro: str = "that value was made here:") -> tuple[str, ...]:
        """Return the part of a message that shows where a value was made, if that is known."""
        loc = self.made_at(value) if isinstance(value, Value) else None
        return (intro, loc.excerpt()) if loc else ()

    def _consume(self, op: Op, args: Sequence[Value], loc: Location) -> None:
        for index in op.consumed(len(args)):
            value = args[index]
            if any(value is mine for mine in self.captured.values()):
                raise ProgramError(
                    f"{op.name}: `{_role(value)}` is updated inside `{self.name}` "
                    "but comes from outside of it",
                    where=loc.excerpt(),
                    hint=HAND_IN,
                )
            if sum(value is arg for arg in args) > 1:
                raise ProgramError(
                    f"{op.name}: uses up this version of `{_role(value)}` and reads it as well",
                    where=loc.excerpt(),
                    hint="compute what you need of the model before, "
                    "or read a copy: `ops.snapshot(model)`",
                )
            self.used_up[value] = loc

    def _check_blocked(self, value: Value, reader: str, loc: Location) -> None:
        for axis in value.axes:
            if axis in self.blocked and self.parent is not None:
                raise ProgramError(
                    f"{reader}: {value.type} is used inside `{self.name}`, "
                    f"which sees its axis `{axis}` only in parts",
                    where=loc.excerpt(),
                    made=self.parent.made_here(value),
                    hint=self.blocked[axis],
                )

    def _explain(
        self, op: Op, rule: TypeRuleError, args: Sequence[Value], loc: Location
    ) -> ProgramError:
        bad = args[rule.arg] if rule.arg is not None and rule.arg < len(args) else None
        elsewhere = bad is not None and self.made_at(bad) != loc
        made = self.made_here(bad, "that argument was made here:") if elsewhere else ()
        return ProgramError(
            f"{op.name}: {rule.problem}", where=loc.excerpt(), made=made, hint=rule.hint
        )


def _role(value: Value) -> str:
    return value.type.role if isinstance(value.type, ModelType) else str(value.type)


def _same_types(args: Sequence[Value], others: Sequence[Value]) -> bool:
    return len(args) == len(others) and all(
        a.type is b.type for a, b in zip(args, others, strict=True)
    )


class Rewriter(GraphBuilder):
    """Copies a graph node by node; `rewriter[old]` is the new value of an old one."""

    def __init__(
        self,
        graph: Graph,
        pool_of_input: Callable[[Value], str] = lambda value: value.pool,
        type_of_input: Callable[[Value], Type] = lambda value: value.type,
    ) -> None:
        super().__init__(graph.name)
        self.graph = graph
        self.new: dict[Value, Value] = {
            value: self.input(name, type_of_input(value), pool_of_input(value))
            for name, value in graph.inputs
        }

    def __getitem__(self, old: Value) -> Value:
        return self.new[old]

    def copy(
        self,
        node: Node,
        args: Sequence[Value] | None = None,
        *,
        op: Op | None = None,
        pool: str | None = None,
    ) -> tuple[Value, ...]:
        """Copy `node`, by default with the new versions of its arguments, its op and its pool.

        The types of the results are inferred anew only if the op or an argument's type is another.
        """
        args = [self[arg] for arg in node.args] if args is None else args
        pool = node.pool if pool is None else pool
        if (op is None or op is node.op) and _same_types(args, node.args):
            args = [self.resolve(arg, node.op.name, node.loc) for arg in args]
            types = [value.type for value in node.results]
            results = self._add_typed(node.op, args, types, node.loc, pool)
        else:
            results = self.add(op or node.op, args, node.loc, pool)
        self.new.update(zip(node.results, results, strict=True))
        return results

    def done(self) -> Graph:
        """Return the rewritten graph."""
        outputs = [(name, self[value]) for name, value in self.graph.outputs]
        return self.finish(outputs, dict(self.graph.params))
