"""How nested graphs hang in the graph around them."""

from flowrl.ir.graph import CAPTURED, FIXED, NEW, Graph, Node, Value

ENGINE = (NEW, FIXED)
"""How the inputs of a nested graph are named that have no source in the graph around it."""

DERIVED = ("prologue", "part")
"""Nested graphs that the compiler makes of another one; a reader has seen what they say."""


def written_regions(node: Node) -> dict[str, Graph]:
    """Return the nested graphs that the program wrote, by name."""
    regions = node.op.regions().items()
    return {name: graph for name, graph in regions if name not in DERIVED}


def sources(node: Node, region: str) -> dict[Value, Value]:
    """Return what each input of a nested graph is in the graph around it.

    A carry is what it starts as, a minibatch's field the record's. What the engine supplies has
    no source.
    """
    graph = node.op.regions()[region]
    captured = node.op.captured(region, node.args)
    given = {f"{CAPTURED}{i}": value for i, value in enumerate(captured)}
    found = {value: given[name] for name, value in graph.inputs if name in given}
    own = [v for name, v in graph.inputs if name not in given and not name.startswith(ENGINE)]
    outer = node.own_args[len(node.own_args) - len(own) :]
    return found | dict(zip(own, outer, strict=True))
