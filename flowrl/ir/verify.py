"""What must hold of every graph, checked after every pass."""

from flowrl.ir.graph import CAPTURED, Graph, Node, Value
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.types import ModelType


class VerifyError(Exception):
    """A graph is malformed: a bug in a pass, never in a user's program."""


def verify(graph: Graph) -> Graph:
    """Check a graph and those inside it; return it.

    Every value is made once and before its use, every type rule holds, a model that is used up
    isn't used otherwise, and a nested graph's captured inputs are as many as the node hands it.

    Raises:
        VerifyError: one of these doesn't hold.
    """
    known: set[Value] = {value for _, value in graph.inputs}
    used_up: set[Value] = set()
    for node in graph.nodes:
        _check(graph, known.issuperset(node.args), node, "uses a value before it is made")
        _check(graph, known.isdisjoint(node.results), node, "makes a value that exists already")
        _check(graph, used_up.isdisjoint(node.args), node, "uses a model that is used up")
        _check_types(graph, node)
        _check_regions(graph, node)
        known.update(node.results)
        gone = [node.args[i] for i in node.op.consumed(len(node.args))]
        once = all(sum(value is arg for arg in node.args) == 1 for value in gone)
        _check(graph, once, node, "uses up a model and reads it as well")
        used_up.update(gone)
    missing = [name for name, value in graph.outputs if value not in known]
    if missing:
        raise VerifyError(f"graph {graph.name} returns `{missing[0]}`, which it never makes")
    return graph


def _check(graph: Graph, holds: bool, node: Node, problem: str) -> None:
    if not holds:
        raise VerifyError(f"graph {graph.name}: {node.op.name} ({node.loc}) {problem}")


def _check_types(graph: Graph, node: Node) -> None:
    try:
        expected = node.op.infer(*(arg.type for arg in node.args))
    except TypeRuleError as error:
        raise VerifyError(
            f"graph {graph.name}: {node.op.name} ({node.loc}): {error.problem}"
        ) from None
    types = tuple(value.type for value in node.results)
    _check(graph, expected == types, node, "has results that its type rule rejects")
    for index in node.op.consumed(len(node.args)):
        is_model = isinstance(node.args[index].type, ModelType)
        _check(graph, is_model, node, f"uses up argument {index}, which is no model")


def _check_regions(graph: Graph, node: Node) -> None:
    for name, region in node.op.regions().items():
        outer = node.op.captured(name, node.args)
        given = {f"{CAPTURED}{i}": value.type for i, value in enumerate(outer)}
        wanted = {key: value.type for key, value in region.inputs if key.startswith(CAPTURED)}
        _check(graph, given.items() >= wanted.items(), node, f"hands region {name} other types")
        verify(region)
