"""Rewriting nested graphs: by a function, and down to the inputs that are still used."""

from collections.abc import Callable, Mapping, Sequence

import attrs

from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import CAPTURED, Graph, Node, Op, Value


def map_regions(op: Op, function: Callable[[Graph], Graph]) -> Op:
    """Return the op with each nested graph replaced by `function` of it."""
    regions = op.regions()
    if not regions:
        return op
    return attrs.evolve(op, **{name: function(graph) for name, graph in regions.items()})  # type: ignore[misc]


def rebuild(graph: Graph, function: Callable[[Rewriter, Node], None]) -> Graph:
    """Return a graph made by `function(out, node)` for each node in turn."""
    out = Rewriter(graph)
    for node in graph.nodes:
        function(out, node)
    return out.done()


def used_inputs(graph: Graph) -> set[str]:
    """Return the names of the inputs that a node or an output of the graph reads."""
    read = {arg for node in graph.nodes for arg in node.args}
    read |= {value for _, value in graph.outputs}
    return {name for name, value in graph.inputs if value in read}


def drop_captures(node: Node) -> tuple[Op, tuple[Value, ...]]:
    """Return the op and the arguments without captured values that no nested graph reads."""
    regions = node.op.regions()
    if not regions:
        return node.op, node.args
    groups = _groups(node)
    first = len(node.args) - sum(len(outer) for _, outer in groups)
    args = list(node.args[:first])
    changed: dict[str, Graph] = {}
    for names, outer in groups:
        used = set().union(*(used_inputs(regions[name]) for name in names))
        keep = [i for i in range(len(outer)) if f"{CAPTURED}{i}" in used]
        args += [outer[i] for i in keep]
        renamed = {f"{CAPTURED}{old}": f"{CAPTURED}{new}" for new, old in enumerate(keep)}
        changed |= {name: _rename(regions[name], renamed) for name in names}
    return attrs.evolve(node.op, **changed), tuple(args)  # type: ignore[misc]


def _groups(node: Node) -> Sequence[tuple[list[str], tuple[Value, ...]]]:
    """Return the regions that share captured arguments, with those arguments, in their order."""
    groups: list[tuple[list[str], tuple[Value, ...]]] = []
    for name in node.op.regions():
        outer = node.op.captured(name, node.args)
        shared = node.op.shares_captures and groups
        if shared:
            groups[0][0].append(name)
        else:
            groups.append(([name], outer))
    return groups


def _rename(graph: Graph, renamed: Mapping[str, str]) -> Graph:
    inputs = tuple(
        (renamed.get(name, name), value)
        for name, value in graph.inputs
        if not name.startswith(CAPTURED) or name in renamed
    )
    return attrs.evolve(graph, inputs=inputs)
