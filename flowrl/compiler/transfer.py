"""Make every edge between pools, and between layouts, an explicit node."""

from collections.abc import Sequence

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.errors import Location
from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import UNPLACED, Graph, Node, Op, Value
from flowrl.ir.types import ModelType
from flowrl.ops.control import ControlOp
from flowrl.ops.model import ModelOp
from flowrl.ops.move import Reshard, Transfer
from flowrl.ops.tensor import Constant


def insert_transfers(graph: Graph, cluster: Cluster) -> Graph:
    """Send each value once to each pool, and each model to each layout, that it is read in.

    Numbers written in the program are known everywhere. Control flow reads its arguments where
    they are; inside, each node gets what it needs, and a scan's carry goes back to where its turn
    began.

    Requires: every value has a pool, and models a layout or none. Ensures: only `transfer`,
    `reshard` and control flow read from another pool or layout. The transfer or reshard of a model
    is its weight sync; nothing else in flowrl moves weights.
    """
    return _Transfers(graph, cluster).run([UNPLACED] * len(graph.outputs), None)


class _Transfers:
    def __init__(self, graph: Graph, cluster: Cluster) -> None:
        self.graph, self.cluster, self.out = graph, cluster, Rewriter(graph)
        numbers = [node for node in graph.nodes if isinstance(node.op, Constant)]
        self.everywhere = {value for node in numbers for value in node.results}
        self.sent: dict[tuple[Value, str, str], Value] = {}

    def run(self, pools: Sequence[str], end: Location | None) -> Graph:
        """Return the graph with its outputs in these pools, where one is named."""
        for node in self.graph.nodes:
            if isinstance(node.op, ControlOp):
                self.out.copy(node, op=self._inside(node.op, node.loc))
            elif isinstance(node.op, Transfer):
                self.out.copy(node)
            else:
                layout = self._layout(node)
                args = [self._local(arg, node.pool, node.loc, layout) for arg in node.args]
                self.out.copy(node, args)
        outputs = [
            (name, self._local(value, pool or value.pool, end))
            for (name, value), pool in zip(self.graph.outputs, pools, strict=True)
        ]
        return self.out.finish(outputs, dict(self.graph.params))

    def _layout(self, node: Node) -> str:
        """Return how the model of a node must lie; "" is as it does."""
        model = node.args[0].type if isinstance(node.op, ModelOp) else None
        use = node.op.use if isinstance(node.op, ModelOp) else ""
        return self.cluster.layout_of(model.role, use) if isinstance(model, ModelType) else ""

    def _local(self, value: Value, pool: str, loc: Location | None, wanted: str = "") -> Value:
        """Return a value as it is in a pool; a model in the layout that is wanted, if one is."""
        layout = value.type.layout if isinstance(value.type, ModelType) else ""
        wanted = wanted if layout and wanted else layout
        if (value.pool == pool and layout == wanted) or value in self.everywhere:
            return self.out[value]
        if (value, pool, wanted) not in self.sent:
            assert loc is not None, "only a nested graph's outputs are wanted elsewhere"
            move = Reshard(value.pool, pool, wanted) if wanted else Transfer(value.pool, pool)
            (self.sent[value, pool, wanted],) = self.out.add(move, [self.out[value]], loc, pool)
        return self.sent[value, pool, wanted]

    def _inside(self, op: ControlOp, loc: Location) -> Op:
        """Return the op with transfers in its nested graphs."""
        made = {
            name: _Transfers(region, self.cluster).run(op.pools_of_outputs(name), loc)
            for name, region in op.regions().items()
        }
        return attrs.evolve(op, **made)  # type: ignore[misc]
