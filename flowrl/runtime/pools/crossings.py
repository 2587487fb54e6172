"""Crossings: values go from the pools that have them to those that read them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flowrl.ir.graph import Node, Value
from flowrl.ir.types import ModelType
from flowrl.ops.model import ModelOp
from flowrl.ops.move import Reshard, Transfer
from flowrl.runtime.graph.segments import Segment, SegmentKind
from flowrl.runtime.pools.held import Held, hold
from flowrl.runtime.pools.instructions import Instructions
from flowrl.runtime.pools.lines import Line
from flowrl.runtime.ranks.edges import Edge


class Crossings:
    """Tells workers at both ends of a crossing what they do; one for each controller.

    Args:
        plan: its name on the workers.
        pools: the workers of each pool.
        holders: those of them that have the pool's values.
        numbers: of the nodes of the plan, as workers count them.
        instructions: what workers are told.
        drops: the generators that drop their weights when another model of their pool works: pools
            and roles.
    """

    def __init__(
        self,
        plan: str,
        pools: Mapping[str, Sequence[Line]],
        holders: Mapping[str, Sequence[Line]],
        numbers: Mapping[Node, int],
        instructions: Instructions,
        drops: Collection[tuple[str, str]] = (),
    ) -> None:
        self.plan, self.pools, self.holders, self.numbers = plan, pools, holders, numbers
        self.tell, self.tell_all = instructions.tell, instructions.tell_all
        self.drops = drops
        self.brought: dict[tuple[str, str], tuple[Held, Held]] = {}
        """The model that was resharded last into a pool, in this step, by the pool and its role."""

    def begin(self) -> None:
        """Start a step: weights are brought anew."""
        self.brought.clear()

    def transfer(self, segment: Segment, env: dict[Value, Any]) -> None:
        """Send what moves between the same two workers together."""
        moves: dict[tuple[str, str], dict[Node, Any]] = {}
        for node in segment.nodes:
            assert isinstance(node.op, Transfer)
            (arg,) = node.args
            x = env[arg]
            if isinstance(x, Held) and isinstance(node.op, Reshard):
                env[node.results[0]] = self._reshard(x, node)
            elif not isinstance(x, Held) or isinstance(arg.type, ModelType):
                env[node.results[0]] = self.bring(x, node.op.dst, (node,), everywhere=True)
            else:
                moves.setdefault((x.pool, node.op.dst), {})[node] = x
        for (src, dst), values in moves.items():
            found, nodes = list(values.values()), tuple(values)
            moved = found if src == dst else self._move(found, self.holders[dst], nodes)
            env.update(zip((node.results[0] for node in nodes), moved, strict=True))

    def read(
        self, segment: Segment, values: Sequence[Value], env: Mapping[Value, Any]
    ) -> list[Any]:
        """Return values as those that hold a segment's pool's have them when it reads them."""
        env = self._as_read(segment, env)
        return [self.bring(env[value], segment.pool) for value in values]

    def bring(
        self, value: Any, pool: str, nodes: tuple[Node, ...] = (), *, everywhere: bool = False
    ) -> Any:
        """Return a value as those that hold a pool's have it, or as all its workers have it."""
        if not isinstance(value, Held) or value.pool == pool:
            return value
        if pool not in value.copies:
            lines = self.pools[pool] if everywhere else self.holders[pool]
            (value.copies[pool],) = self._move([value], lines, nodes)
        return value.copies[pool]

    def spread(self, model: Held) -> None:
        """Give a model's weights to the workers of its pool that lack them."""
        lacking = [line for line in self.pools[model.pool] if line not in model.lines]
        if lacking:
            address = self.tell(model.lines[0], (), "send", self.plan, (), model.id)
            self.tell_all(lacking, "receive", self.plan, (), model.id, address)
            model.lines += lacking

    def _move(
        self, values: Sequence[Held], lines: Sequence[Line], nodes: tuple[Node, ...] = ()
    ) -> list[Held]:
        """Send values of one pool to workers of another, together; `nodes` ask for it."""
        ids = [value.id for value in values]
        src, *others = self.holders[values[0].pool]
        told = self.plan, [self.numbers[node] for node in nodes]
        address = self.tell(src, nodes, "send", *told, *ids)
        for line in others:
            self.tell(line, nodes, "attend", *ids, again=True)
        moved = hold(lines, len(values))
        self.tell_all(lines, "receive", *told, moved[0].id, address)
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
            result = Held(targets)
            told = self.plan, edge, self.numbers[node], model.id, version, result.id
            both = [*sources, *(line for line in targets if line not in sources)]
            self.tell_all(both, "reshard", *told, nodes=(node,))
            self._drop(edge.dst, but=edge.role)
            self.brought[there], result.way = (model, result), (model, node)
        return result

    def _as_read(self, segment: Segment, env: Mapping[Value, Any]) -> Mapping[Value, Any]:
        """Return values as a segment reads them: weights that were dropped since come anew."""
        if not self.drops or not any(isinstance(n.op, ModelOp) for n in segment.nodes):
            return env
        if segment.kind is not SegmentKind.GENERATE:
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
