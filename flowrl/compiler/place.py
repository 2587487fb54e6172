"""Assign every node, and so every value, to a pool."""

from collections.abc import Callable, Sequence

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import UNPLACED, Graph, Node, Op, Value
from flowrl.ir.types import ModelType
from flowrl.ops.control import ControlOp
from flowrl.ops.model import ModelOp, Score
from flowrl.ops.tensor import Constant


def place(graph: Graph, cluster: Cluster) -> Graph:
    """Put each model op in the pool of its role and use, tensor ops by their largest data.

    Control flow has no pool of its own: its nested graphs are placed node by node. A loss lives
    with its update. Models stay in the pool that trains them, or reads them if none does, and
    rows that are carried to the next step where this one leaves them.

    Requires: nothing. Ensures: every value has a pool; one handed into a nested graph, or out of
    it, keeps its own. A pool that is set already stays.
    """
    homes = {
        value: value.pool or ("" if value in _carried(graph) else _home(value, graph, cluster))
        for _, value in graph.inputs
    }
    ends = {name: value.pool for name, value in _place(graph, cluster, homes.__getitem__).outputs}
    for name, value in graph.inputs:
        homes[value] = homes[value] or ends[name] or _home(value, graph, cluster)
    return _place(graph, cluster, homes.__getitem__)


def _carried(graph: Graph) -> set[Value]:
    """Return the inputs that are rows from the step before: outputs have their names."""
    ends = {name for name, _ in graph.outputs}
    return {value for name, value in graph.inputs if value.axes and name in ends}


def _place(graph: Graph, cluster: Cluster, pool_of_input: Callable[[Value], str]) -> Graph:
    out = Rewriter(graph, pool_of_input)
    for node in graph.nodes:
        args = [out[arg] for arg in node.args]
        if isinstance(node.op, ControlOp):
            op = _place_regions(node.op, args, cluster)
            out.copy(node, args, op=op, pool=node.pool or cluster.pools[0].name)
        else:
            out.copy(node, args, pool=node.pool or _pool(node, args, cluster))
    return out.done()


def _place_regions(op: ControlOp, args: Sequence[Value], cluster: Cluster) -> Op:
    placed = {}
    for name, region in op.regions().items():
        outer = op.handed_in(name, args)
        pools = {inner: arg.pool for (_, inner), arg in zip(region.inputs, outer, strict=True)}
        placed[name] = _place(region, cluster, pools.__getitem__)
    return attrs.evolve(op, **placed)  # type: ignore[misc]


def _pool(node: Node, args: list[Value], cluster: Cluster) -> str:
    op = node.op
    if isinstance(op, ModelOp):
        model = node.args[0].type
        assert isinstance(model, ModelType)
        return cluster.pool_of(model.role, op.use)
    if isinstance(op, Score):
        return cluster.pool_of("reward")
    if isinstance(op, Constant) or not args:
        return cluster.pools[0].name
    return max(args, key=lambda arg: (len(arg.axes), arg.pool != UNPLACED)).pool  # the largest


def _home(value: Value, graph: Graph, cluster: Cluster) -> str:
    if not isinstance(value.type, ModelType):
        return cluster.pool_of("data")
    uses = {
        node.op.use
        for node in graph.walk()
        if isinstance(node.op, ModelOp) and node.args[0].type == value.type
    }
    return cluster.pool_of(value.type.role, cluster.home_of(value.type.role, uses))
