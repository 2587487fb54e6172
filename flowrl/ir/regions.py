"""Rewriting nested graphs: by a function, and down to the inputs that are still used."""

from collections.abc import Callable, Mapping, Sequence

import attrs

from flowrl.ir.graph import CAPTURED, Graph, Node, Op, Value


def map_regions(op: Op, function: Callable[[Graph], Graph]) -> Op:
    """Return the op with each nested graph replaced by `function` of it."""
    regions = op.regions()
    if not regions:
        return op
    return attrs.evolve(op, **{name: function(graph) for name, graph in regions.items()})  # type: ignore[misc]


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
    args = list(node.own_args)
    changed: dict[str, Graph] = {}
    for names, outer in _groups(node):
        used = set().union(*(used_inputs(regions[name]) for name in names))
        keep = [i for i in range(len(outer)) if f"{CAPTURED}{i}" in used]
        args += [outer[i] for i in keep]
        renamed = {f"{CAPTURED}{old}": f"{CAPTURED}{new}" for new, old in enumerate(keep)}
        changed |= {name: _rename(regions[name], renamed) for name in names}
    return attrs.evolve(node.op, **changed), tuple(args)  # type: ignore[misc]


def _groups(node: Node) -> Sequence[tuple[list[str], tuple[Value, ...]]]:
    """Return the regions that share captured arguments, with those arguments, in their order."""
    names = list(node.op.regions())
    if node.op.shares_captures:
        return [(names, node.op.captured(names[0], node.args))]
    return [([name], node.op.captured(name, node.args)) for name in names]


def _rename(graph: Graph, renamed: Mapping[str, str]) -> Graph:
    inputs = tuple(
        (renamed.get(name, name), value)
        for name, value in graph.inputs
        if not name.startswith(CAPTURED) or name in renamed
    )
    return attrs.evolve(graph, inputs=inputs)
