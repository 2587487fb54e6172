"""Make every edge between pools an explicit node."""

from collections.abc import Sequence

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.errors import Location
from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import UNPLACED, Graph, Op, Value
from flowrl.ops.control import ControlOp
from flowrl.ops.move import Transfer
from flowrl.ops.tensor import Constant


def insert_transfers(graph: Graph, cluster: Cluster) -> Graph:
    """Send each value once to each pool that reads it and doesn't hold it.

    Numbers written in the program are known everywhere. Control flow reads its arguments where
    they are; inside, each node gets what it needs, and a scan's carry goes back to where its turn
    began.

    Requires: every value has a pool. Ensures: only `transfer` and control flow read from another
    pool. The transfer of a model is its weight sync; nothing else in flowrl moves weights.
    """
    return _Transfers(graph).run([UNPLACED] * len(graph.outputs), None)


class _Transfers:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.out = graph, Rewriter(graph)
        numbers = [node for node in graph.nodes if isinstance(node.op, Constant)]
        self.everywhere = {value for node in numbers for value in node.results}
        self.sent: dict[tuple[Value, str], Value] = {}

    def run(self, pools: Sequence[str], end: Location | None) -> Graph:
        """Return the graph with its outputs in these pools, where one is named."""
        for node in self.graph.nodes:
            if isinstance(node.op, ControlOp):
                self.out.copy(node, op=_inside(node.op, node.loc))
            elif isinstance(node.op, Transfer):
                self.out.copy(node)
            else:
                self.out.copy(node, [self._local(arg, node.pool, node.loc) for arg in node.args])
        outputs = [
            (name, self._local(value, pool or value.pool, end))
            for (name, value), pool in zip(self.graph.outputs, pools, strict=True)
        ]
        return self.out.finish(outputs, dict(self.graph.params))

    def _local(self, value: Value, pool: str, loc: Location | None) -> Value:
        if value.pool == pool or value in self.everywhere:
            return self.out[value]
        if (value, pool) not in self.sent:
            assert loc is not None, "only a nested graph's outputs are wanted elsewhere"
            move = Transfer(value.pool, pool)
            (self.sent[value, pool],) = self.out.add(move, [self.out[value]], loc, pool)
        return self.sent[value, pool]


def _inside(op: ControlOp, loc: Location) -> Op:
    """Return the op with transfers in its nested graphs."""
    made = {
        name: _Transfers(region).run(op.pools_of_outputs(name), loc)
        for name, region in op.regions().items()
    }
    return attrs.evolve(op, **made)  # type: ignore[misc]
