"""The controller: walks a lowered graph and tells workers what to do; it never has a value."""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor

from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.types import ModelType
from flowrl.ops.model import ModelOp
from flowrl.ops.move import Reshard, Transfer
from flowrl.ops.names import named_nodes
from flowrl.ops.tensor import Constant
from flowrl.runtime.edges import Edge, layout_of
from flowrl.runtime.host import Path
from flowrl.runtime.instructions import Instructions, several
from flowrl.runtime.lines import Given, Line, Replies
from flowrl.runtime.loops import CONTROL
from flowrl.runtime.origins import origins, row_of
from flowrl.runtime.segments import Kind, Segment, inner_graphs, segments

PROMPTS = ("context", "rows")
EXAMPLES = ("context", "rows", "tokens", "mask")


class Held:
    """A value that workers have, under an id; when nothing here refers to it, they forget it."""

    __slots__ = ("copies", "id", "lines", "way")

    def __init__(self, id: int, lines: Sequence[Line]) -> None:
        self.id, self.lines = id, list(lines)
        self.copies: dict[str, Held] = {}
        """The same value in other pools."""
        self.way: tuple[Held, Node] | None = None
        """Of a model that was resharded: the one it was, and by which node."""

    def __del__(self) -> None:
        for line in self.lines:
            line.dead.append(self.id)


@attrs.define
class Place:
    """A place in the data: rows handed out so far."""

    position: int = 0


class Controller:
    """Walks one plan; a `Machine` whose values are `Held` by workers, or numbers.

    Args:
        plan: its name on the workers.
        graph: the plan's.
        source: the same graph, with the places of its nodes in the user's files.
        pools: the workers of each pool.
        data: the worker that has the data.
        replies: where workers' replies arrive.
        ranked: the pools whose workers run models together, and have the same values.
        drops: the generators that drop their weights when another model of their pool works: pools
            and roles.
    """

    def __init__(
        self,
        plan: str,
        graph: Graph,
        source: Graph,
        pools: Mapping[str, Sequence[Line]],
        data: Line,
        replies: Replies,
        ranked: Collection[str] = (),
        drops: Collection[tuple[str, str]] = (),
    ) -> None:
        self.plan, self.pools, self.data, self.replies = plan, pools, data, replies
        self.drops = drops
        self.holders = {p: lines[: None if p in ranked else 1] for p, lines in pools.items()}
        """The workers of each pool that have its values: its first one, or all its ranks."""
        self.graphs = list(inner_graphs(graph))
        self.divided = {graph: segments(graph) for graph in self.graphs}
        named = list(named_nodes(graph))
        self.names = [name for name, _ in named]
        self.numbers = {node: number for number, (_, node) in enumerate(named)}
        pairs = zip(self.graphs, inner_graphs(source), strict=True)
        self.instructions = Instructions(
            {a: b for g, s in pairs for a, b in zip(g.nodes, s.nodes, strict=True)}, replies
        )
        self.tell, self.ask = self.instructions.tell, self.instructions.ask
        self.places: Mapping[str, Place] = {}
        self.brought: dict[tuple[str, str], tuple[Held, Held]] = {}
        """The model that was resharded last into a pool, in this step, by the pool and its role."""

    def begin(self, step: int, places: Mapping[str, Place]) -> None:
        """Start a step; `places` are where its rows are drawn."""
        self.places = places
        self.brought.clear()
        self.tell_all([x for lines in self.pools.values() for x in lines], "begin", self.plan, step)

    def run(self, graph: Graph, inputs: Sequence[Any], path: Path = ()) -> list[Any]:
        """Return the outputs of `graph`: what it gave workers to do may not be done yet."""
        env = {value: x for (_, value), x in zip(graph.inputs, inputs, strict=True)}
        for number, segment in enumerate(self.divided[graph]):
            place = (self.plan, self.graphs.index(graph), number)
            match segment.kind:
                case Kind.CONSTANTS:
                    env |= {node.results[0]: _number(node) for node in segment.nodes}
                case Kind.TRANSFERS:
                    self._transfer(segment, env)
                case Kind.CONTROL:
                    self._control(segment.nodes[0], env, path)
                case Kind.GENERATE if len(self.pools[segment.pool]) > 1:
                    self._generate(place, segment, env, path)
                case _:
                    self._evaluate(place, segment, env, path)
        return [env[value] for _, value in graph.outputs]

    def tell_all(
        self,
        lines: Sequence[Line],
        method: str,
        *args: Any,
        nodes: tuple[Node, ...] = (),
        **how: Any,
    ) -> list[Any]:
        """Have all these workers do the same; return their replies to come."""
        return [
            self.tell(line, nodes, method, *args, again=number > 0, **how)
            for number, line in enumerate(lines)
        ]

    def ask_all(self, pool: str, method: str, *args: Any) -> Any:
        """Have all that hold a pool's values do the same; wait for the reply of the first."""
        lines = self.holders[pool]
        return self.instructions.wait(self.tell_all(lines, method, *args)[0], lines[0])

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have all that have the first value compute `function(*args)`."""
        lines = self._having(args)
        return self._call(lines, function, *args) if lines else function(*args)

    def once(self, function: Callable[..., Any], *args: Any) -> Any:
        """Have one that has the first value call a function that does more than compute."""
        lines = self._having(args)
        return self._call(lines[:1], function, *args) if lines else function(*args)

    def make(self, pool: str, function: Callable[..., Any], *args: Any) -> Held:
        """Have a value of a pool made: `function(*args)` of small arguments."""
        return self._call(self.holders[pool], function, *args)

    def _having(self, args: Sequence[Any]) -> Sequence[Line]:
        """Return the workers that have the first value among these; none if all are numbers."""
        pools = (arg.lines[0].pool for arg in args if isinstance(arg, Held))
        return next((self.holders[pool] for pool in pools), ())

    def _call(self, lines: Sequence[Line], function: Callable[..., Any], *args: Any) -> Held:
        result = Held(next(IDS), lines)
        given = [self._given(self._bring(arg, lines[0].pool)) for arg in args]
        self.tell_all(lines, "call", function, given, result.id)
        return result

    def number(self, function: Callable[[Any], int], value: Any) -> int:
        """Wait for a number about a value."""
        if not isinstance(value, Held):
            return function(value)
        return int(self.ask(value.lines[0], "number", function, value.id))

    def draw(self, source: str, count: int) -> dict[str, Any]:
        """Return the fields of the next prompts of a data input."""
        return self.rows(source, count, "prompts", PROMPTS)

    def rows(self, source: str, count: int, name: str, fields: Sequence[str]) -> dict[str, Any]:
        """Return the fields of the next rows, under the names of the graph inputs they are."""
        place = self.places[source]
        values = self._new([self.data], len(fields))
        self.tell(self.data, (), "draw", self.plan, source, place.position, count, values[0].id)
        place.position += count
        return {f"{name}.{field}": x for field, x in zip(fields, values, strict=True)}

    def floats(self, values: Sequence[Any]) -> list[float]:
        """Wait for scalars."""
        found = {i: float(x) for i, x in enumerate(values) if not isinstance(x, Held)}
        by_line: dict[Line, list[int]] = {}
        for i, x in enumerate(values):
            if isinstance(x, Held):
                by_line.setdefault(x.lines[0], []).append(i)
        asked = []
        for line, places in by_line.items():
            for start in range(0, len(places), MOST_NUMBERS):
                few = places[start : start + MOST_NUMBERS]
                reply = self.tell(line, (), "numbers", [values[i].id for i in few])
                asked.append((few, reply))
        self.instructions.settle()
        for few, reply in asked:
            found |= dict(zip(few, self.replies.get(reply), strict=True))
        return [found[i] for i in range(len(values))]

    def _evaluate(
        self, place: tuple[Any, ...], segment: Segment, env: dict[Value, Any], path: Path
    ) -> None:
        lines = self.holders[segment.pool]
        values = self._undropped(segment, env)
        given = [self._given(self._bring(values[value], segment.pool)) for value in segment.reads]
        results = self._new(lines, len(segment.gives))
        first = results[0].id if results else 0
        known = partial(row_of, env=origins(env), ask=self._asked)
        told = *place, given, first, path
        self.tell_all(lines, "evaluate", *told, nodes=segment.nodes, row_of=known)
        env.update(zip(segment.gives, results, strict=True))

    def _generate(
        self, place: tuple[Any, ...], segment: Segment, env: dict[Value, Any], path: Path
    ) -> None:
        """Have all replicas of a pool sample, each its blocks; those that hold values collect."""
        nodes, holders = segment.nodes, self.holders[segment.pool]
        replicas = self._replicas(segment)
        lines = [replica[0] for replica in replicas]
        there = self._undropped(segment, env)
        values = [self._bring(there[value], segment.pool) for value in nodes[0].args]
        given = [self._given(value) for value in values]
        self._spread(values[0], segment.pool)
        told = *place, given, path, len(lines)
        asked = self.tell(lines[0], nodes, "scatter", *told, replies=len(lines))
        answers = {
            line: self.tell(
                line, nodes, "sample", *place, given[0], box, again=line is not lines[0]
            )
            for replica, box in zip(replicas, several(asked), strict=True)
            for line in replica
        }
        results = self._new(holders, len(segment.gives))
        made = *place, given[0], results[0].id, *(answers[line] for line in lines)
        self.tell_all(holders, "gather", *made, nodes=nodes)
        env.update(zip(segment.gives, results, strict=True))

    def _transfer(self, segment: Segment, env: dict[Value, Any]) -> None:
        """Send what moves between the same two workers together."""
        moves: dict[tuple[str, str], dict[Node, Any]] = {}
        for node in segment.nodes:
            assert isinstance(node.op, Transfer)
            (arg,) = node.args
            x = env[arg]
            if isinstance(x, Held) and isinstance(node.op, Reshard):
                env[node.results[0]] = self._reshard(x, node)
            elif not isinstance(x, Held) or isinstance(arg.type, ModelType):
                env[node.results[0]] = self._bring(x, node.op.dst, (node,), everywhere=True)
            else:
                moves.setdefault((x.lines[0].pool, node.op.dst), {})[node] = x
        for (src, dst), values in moves.items():
            found, nodes = list(values.values()), tuple(values)
            moved = found if src == dst else self._move(found, self.holders[dst], nodes)
            env.update(zip((node.results[0] for node in nodes), moved, strict=True))

    def _control(self, node: Node, env: dict[Value, Any], path: Path) -> None:
        args = [env[arg] for arg in node.args]
        results = CONTROL[type(node.op)](self, node, args, path)
        env.update(zip(node.results, results, strict=True))

    def _bring(
        self, value: Any, pool: str, nodes: tuple[Node, ...] = (), *, everywhere: bool = False
    ) -> Any:
        """Return a value as those that hold a pool's have it, or as all its workers have it."""
        if not isinstance(value, Held) or value.lines[0].pool == pool:
            return value
        if pool not in value.copies:
            lines = self.pools[pool] if everywhere else self.holders[pool]
            (value.copies[pool],) = self._move([value], lines, nodes)
        return value.copies[pool]

    def _move(
        self, values: Sequence[Held], lines: Sequence[Line], nodes: tuple[Node, ...] = ()
    ) -> list[Held]:
        """Send values of one pool to workers of another, together; `nodes` ask for it."""
        ids = [value.id for value in values]
        src, *others = self.holders[values[0].lines[0].pool]
        told = self.plan, [self.numbers[node] for node in nodes]
        box = self.tell(src, nodes, "send", *told, *ids)
        for line in others:
            self.tell(line, nodes, "attend", *ids, again=True)
        moved = [Held(next(IDS), lines) for _ in values]
        self.tell_all(lines, "receive", *told, moved[0].id, box)
        return moved

    def _reshard(self, model: Held, node: Node) -> Held:
        """Have the workers at both ends of an edge bring a model's weights into another layout.

        Within a step they needn't again, until the engines there have got others.
        """
        edge = Edge.of(node)
        there = edge.dst, edge.role
        before, result = self.brought.get(there, (None, None))
        if result is None or before is not model:
            sources, targets = self.holders[edge.src], self.pools[edge.dst]
            version = self.tell(sources[0], (node,), "version", model.id)
            result = Held(next(IDS), targets)
            told = self.plan, edge, self.numbers[node], model.id, version, result.id
            both = [*sources, *(line for line in targets if line not in sources)]
            self.tell_all(both, "reshard", *told, nodes=(node,))
            self._drop(edge.dst, but=edge.role)
            self.brought[there], result.way = (model, result), (model, node)
        return result

    def _undropped(self, segment: Segment, env: Mapping[Value, Any]) -> Mapping[Value, Any]:
        """Return values as a segment reads them: weights that were dropped since come anew."""
        if not self.drops or not any(isinstance(n.op, ModelOp) for n in segment.nodes):
            return env
        if segment.kind is not Kind.GENERATE:
            self._drop(segment.pool)
            return env
        model = segment.nodes[0].args[0]
        assert isinstance(model.type, ModelType)
        role, held = model.type.role, env[model]
        self._drop(segment.pool, but=role)
        if not isinstance(held, Held) or not held.way or (segment.pool, role) in self.brought:
            return env
        return {**env, model: self._reshard(*held.way)}

    def _drop(self, pool: str, but: str = "") -> None:
        """Take note that generators of a pool drop their weights, but for one that works."""
        for there in self.drops:
            if there[0] == pool and there[1] != but:
                self.brought.pop(there, None)

    def _replicas(self, segment: Segment) -> list[Sequence[Line]]:
        """Return the workers of a pool that sample together from each replica of a model."""
        lines, (model, *_) = self.pools[segment.pool], segment.nodes[0].args
        assert isinstance(model.type, ModelType)
        size = len(lines) // layout_of(model).dp if model.type.layout else 1
        return [lines[start : start + size] for start in range(0, len(lines), size)]

    def _spread(self, model: Held, pool: str) -> None:
        """Give a model's weights to the workers of its pool that lack them."""
        lacking = [line for line in self.pools[pool] if line not in model.lines]
        if lacking:
            box = self.tell(model.lines[0], (), "send", self.plan, (), model.id)
            self.tell_all(lacking, "receive", self.plan, (), model.id, box)
            model.lines += lacking

    def _new(self, lines: Sequence[Line], count: int) -> list[Held]:
        return [Held(next(IDS), lines) for _ in range(count)]

    def _asked(self, function: Callable[[Any], Any], value: Any) -> Any:
        """Return what a function says of a value: a number or a few words."""
        if not isinstance(value, Held):
            return function(value)
        return self.replies.get(value.lines[0].call("number", function, value.id))

    def _given(self, value: Any) -> Given:
        if isinstance(value, Held):
            return value.id
        if isinstance(value, Tensor) and not value.dim():
            return "number", value.item()
        return "as it is", value


IDS = itertools.count()
"""Of values, in all runs of this process."""

MOST_NUMBERS = 200
"""Scalars a message: it stays small."""


def _number(node: Node) -> Tensor:
    assert isinstance(node.op, Constant)
    return torch.tensor(node.op.value)
