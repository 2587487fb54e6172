"""The controller: walks a lowered graph and tells workers what to do; it never has a value."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor

from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.types import ModelType
from flowrl.ops.names import named_nodes
from flowrl.ops.tensor import Constant
from flowrl.runtime.graph.loops import CONTROL
from flowrl.runtime.graph.origins import origins, row_of
from flowrl.runtime.graph.segments import Segment, SegmentKind, inner_graphs, segments
from flowrl.runtime.host import Path
from flowrl.runtime.pools.causes import several
from flowrl.runtime.pools.crossings import Crossings
from flowrl.runtime.pools.held import Held, as_given, hold
from flowrl.runtime.pools.instructions import Instructions
from flowrl.runtime.pools.lines import Line, Replies
from flowrl.runtime.ranks.edges import layout_of

PROMPTS = ("context", "rows")
EXAMPLES = ("context", "rows", "tokens", "mask")

MOST_NUMBERS = 200
"""Scalars a message: it stays small."""


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
        self.holders = {p: lines[: None if p in ranked else 1] for p, lines in pools.items()}
        """The workers of each pool that have its values: its first one, or all its ranks."""
        self.graphs = list(inner_graphs(graph))
        self.divided = {graph: segments(graph) for graph in self.graphs}
        named = list(named_nodes(graph))
        self.names = [name for name, _ in named]
        pairs = zip(self.graphs, inner_graphs(source), strict=True)
        self.instructions = Instructions(
            {a: b for g, s in pairs for a, b in zip(g.nodes, s.nodes, strict=True)}, replies
        )
        self.tell, self.tell_all = self.instructions.tell, self.instructions.tell_all
        self.ask = self.instructions.ask
        numbers = {node: number for number, (_, node) in enumerate(named)}
        self.crossings = Crossings(plan, pools, self.holders, numbers, self.instructions, drops)
        self.places: Mapping[str, Place] = {}

    def begin(self, step: int, places: Mapping[str, Place]) -> None:
        """Start a step; `places` are where its rows are drawn."""
        self.places = places
        self.crossings.begin()
        self.tell_all([x for lines in self.pools.values() for x in lines], "begin", self.plan, step)

    def run(self, graph: Graph, inputs: Sequence[Any], path: Path = ()) -> list[Any]:
        """Return the outputs of `graph`: what it gave workers to do may not be done yet."""
        env = {value: x for (_, value), x in zip(graph.inputs, inputs, strict=True)}
        for number, segment in enumerate(self.divided[graph]):
            place = (self.plan, self.graphs.index(graph), number)
            match segment.kind:
                case SegmentKind.CONSTANTS:
                    env |= {node.results[0]: _number(node) for node in segment.nodes}
                case SegmentKind.TRANSFERS:
                    self.crossings.transfer(segment, env)
                case SegmentKind.CONTROL:
                    self._control(segment.nodes[0], env, path)
                case SegmentKind.GENERATE if len(self.pools[segment.pool]) > 1:
                    self._generate(place, segment, env, path)
                case _:
                    self._evaluate(place, segment, env, path)
        return [env[value] for _, value in graph.outputs]

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
        pools = (arg.pool for arg in args if isinstance(arg, Held))
        return next((self.holders[pool] for pool in pools), ())

    def _call(self, lines: Sequence[Line], function: Callable[..., Any], *args: Any) -> Held:
        result = Held(lines)
        given = [as_given(self.crossings.bring(arg, lines[0].pool)) for arg in args]
        self.tell_all(lines, "call", function, given, result.id)
        return result

    def number(self, function: Callable[[Any], int], value: Any) -> int:
        """Wait for a number about a value."""
        if not isinstance(value, Held):
            return function(value)
        return int(self.ask(value.lines[0], "number", function, value.id))

    def words(self, function: Callable[[Any], str], value: Any) -> str:
        """Wait for a few words about a value."""
        if not isinstance(value, Held):
            return function(value)
        return str(self.ask(value.lines[0], "words", function, value.id))

    def place(self, node: Node) -> str:
        """Return the lines of the user's source that made a node."""
        return self.instructions.source[node].loc.excerpt()

    def draw(self, source: str, count: int) -> dict[str, Any]:
        """Return the fields of the next prompts of a data input."""
        return self.rows(source, count, "prompts", PROMPTS)

    def rows(self, source: str, count: int, name: str, fields: Sequence[str]) -> dict[str, Any]:
        """Return the fields of the next rows, under the names of the graph inputs they are."""
        place = self.places[source]
        values = hold([self.data], len(fields))
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
        given = [as_given(x) for x in self.crossings.read(segment, segment.reads, env)]
        results = hold(lines, len(segment.gives))
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
        values = self.crossings.read(segment, nodes[0].args, env)
        given = [as_given(value) for value in values]
        self.crossings.spread(values[0])
        told = *place, given, path, len(lines)
        asked = self.tell(lines[0], nodes, "scatter", *told, replies=len(lines))
        answers = {
            line: self.tell(
                line, nodes, "sample", *place, given[0], address, again=line is not lines[0]
            )
            for replica, address in zip(replicas, several(asked), strict=True)
            for line in replica
        }
        results = hold(holders, len(segment.gives))
        made = *place, given[0], results[0].id, *(answers[line] for line in lines)
        self.tell_all(holders, "gather", *made, nodes=nodes)
        env.update(zip(segment.gives, results, strict=True))

    def _control(self, node: Node, env: dict[Value, Any], path: Path) -> None:
        args = [env[arg] for arg in node.args]
        results = CONTROL[type(node.op)](self, node, args, path)
        env.update(zip(node.results, results, strict=True))

    def _replicas(self, segment: Segment) -> list[Sequence[Line]]:
        """Return the workers of a pool that sample together from each replica of a model."""
        lines, (model, *_) = self.pools[segment.pool], segment.nodes[0].args
        assert isinstance(model.type, ModelType)
        size = len(lines) // layout_of(model).dp if model.type.layout else 1
        return [lines[start : start + size] for start in range(0, len(lines), size)]

    def _asked(self, function: Callable[[Any], Any], value: Any) -> Any:
        """Return what a function says of a value: a number or a few words."""
        if not isinstance(value, Held):
            return function(value)
        return self.replies.get(value.lines[0].call("number", function, value.id))


def _number(node: Node) -> Tensor:
    assert isinstance(node.op, Constant)
    return torch.tensor(node.op.value)
