"""The ops of a graph by the names that they are printed with."""

from collections.abc import Iterator

from flowrl.ir.graph import Graph, Node
from flowrl.ir.printer import names_of, op_name
from flowrl.ops.control import ControlOp
from flowrl.ops.tensor import Constant


def named_nodes(graph: Graph, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the nodes that a step runs, those of loops and branches too: `%16/%0` is inside `%16`.

    A loss belongs to its update. The op of control flow comes before what is inside it; numbers of
    the program are left out. Of a `cond`, both graphs appear, and two of their ops may share a
    name.
    """
    names = names_of(graph)
    for node in graph.nodes:
        if isinstance(node.op, Constant):
            continue
        name = prefix + op_name(node, names)
        yield name, node
        if isinstance(node.op, ControlOp):
            for region in node.op.regions().values():
                yield from named_nodes(region, f"{name}/")
