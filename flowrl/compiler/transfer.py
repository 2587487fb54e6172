"""Make every edge between pools an explicit node."""

from flowrl.compiler.cluster import Cluster
from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.regions import map_regions
from flowrl.ops.control import CONTROL
from flowrl.ops.move import Transfer
from flowrl.ops.tensor import Constant


def insert_transfers(graph: Graph, cluster: Cluster) -> Graph:
    """Send each value once to each pool that reads it and doesn't hold it.

    Numbers written in the program are known everywhere. Control flow reads its arguments where
    they are; inside, each node gets what it needs.

    Requires: every value has a pool. Ensures: only `transfer` and control flow read from another
    pool. The transfer of a model is its weight sync; nothing else in flowrl moves weights.
    """
    out = Rewriter(graph)
    constants = {v for n in graph.nodes if isinstance(n.op, Constant) for v in n.results}
    sent: dict[tuple[Value, str], Value] = {}

    def local(arg: Value, node: Node) -> Value:
        if arg.pool == node.pool or arg in constants or isinstance(node.op, (Transfer, *CONTROL)):
            return out[arg]
        if (arg, node.pool) not in sent:
            move = Transfer(arg.pool, node.pool)
            (sent[arg, node.pool],) = out.add(move, [out[arg]], node.loc, pool=node.pool)
        return sent[arg, node.pool]

    for node in graph.nodes:
        op = node.op
        if isinstance(op, CONTROL):
            op = map_regions(op, lambda region: insert_transfers(region, cluster))
        out.copy(node, [local(arg, node) for arg in node.args], op=op)
    return out.done()
