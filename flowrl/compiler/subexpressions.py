"""Compute nothing twice."""

from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import Graph, Op, Value
from flowrl.ir.regions import map_regions


def merge_subexpressions(graph: Graph) -> Graph:
    """Replace a node by an equal earlier one of the same pool.

    Requires: nothing. Ensures: no two nodes of a graph have equal ops and the same arguments,
    unless they act on the world, draw at random, or make an axis (each of those is unlike others).
    """
    out = Rewriter(graph)
    seen: dict[tuple[Op, tuple[int, ...], str], tuple[Value, ...]] = {}
    for node in graph.nodes:
        op = map_regions(node.op, merge_subexpressions)
        args = [out[arg] for arg in node.args]
        key = (op, tuple(map(id, args)), node.pool)
        if op.effect or op.consumed(len(args)) or key not in seen:
            seen[key] = out.copy(node, args, op=op)
        else:
            out.new.update(zip(node.results, seen[key], strict=True))
    return out.done()
