"""Drop what nobody reads."""

import attrs

from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.regions import drop_captures, map_regions, used_inputs
from flowrl.ops.control import Scan


def eliminate_dead_code(graph: Graph) -> Graph:
    """Keep only what the outputs depend on, and ops that act on the world.

    Requires: nothing. Ensures: every node is read or has an effect, in nested graphs too, and
    these capture nothing that they don't read.
    """
    small = {node: _slim(node) for node in graph.nodes}
    live: set[Value] = {value for _, value in graph.outputs}
    kept: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op.effect or not live.isdisjoint(node.results):
            kept.add(node)
            live.update(small[node].args)

    out = Rewriter(graph)
    for node in graph.nodes:
        if node in kept:
            slim = small[node]
            out.copy(node, [out[arg] for arg in slim.args], op=slim.op)
    return out.done()


def _slim(node: Node) -> Node:
    op = map_regions(node.op, eliminate_dead_code)
    node = _drop_fields(attrs.evolve(node, op=op))
    op, args = drop_captures(node)
    return attrs.evolve(node, op=op, args=args)


def _drop_fields(node: Node) -> Node:
    """Drop fields of the record that a scan's body doesn't read."""
    if not isinstance(node.op, Scan):
        return node
    body, first = node.op.body, 1 + node.op.carry
    used = used_inputs(body)
    fields = [name for name, _ in body.inputs if name.startswith("mb.")]
    read = [i for i, name in enumerate(fields) if name in used]
    inputs = tuple(p for p in body.inputs if not p[0].startswith("mb.") or p[0] in used)
    args = (
        *node.args[:first],
        *(node.args[first + i] for i in read),
        *node.args[first + len(fields) :],
    )
    op = attrs.evolve(node.op, body=attrs.evolve(body, inputs=inputs))
    return attrs.evolve(node, op=op, args=args)
