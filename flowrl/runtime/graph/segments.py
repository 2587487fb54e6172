"""Graphs in segments: consecutive nodes that one worker evaluates at one instruction."""

from collections.abc import Iterable
from enum import StrEnum
from itertools import groupby

import attrs

from flowrl.ir.graph import Graph, Node, Value
from flowrl.ops.control import ControlOp
from flowrl.ops.model import Generate
from flowrl.ops.move import Transfer
from flowrl.ops.tensor import Constant


class SegmentKind(StrEnum):
    """Who evaluates a segment."""

    CONSTANTS = "constants"
    """Numbers of the program: known everywhere."""
    TRANSFERS = "transfers"
    """The controller tells workers to send and receive."""
    CONTROL = "control"
    """The controller walks the nested graphs."""
    GENERATE = "generate"
    """All workers of a pool, each its blocks."""
    OPS = "ops"
    """One worker."""


@attrs.frozen(eq=False)
class Segment:
    """Consecutive nodes of a graph.

    Attributes:
        kind: who evaluates it.
        pool: where, for `generate` and `ops`.
        nodes: in order.
        reads: the values that it needs, each once.
        gives: its results that something outside reads.
    """

    kind: SegmentKind
    pool: str
    nodes: tuple[Node, ...]
    reads: tuple[Value, ...]
    gives: tuple[Value, ...]


def segments(graph: Graph) -> list[Segment]:
    """Return the nodes of a graph in segments; controller and worker divide it alike."""
    parts = [(key, tuple(nodes)) for key, nodes in groupby(graph.nodes, _key)]
    readers = [{value for node in nodes for value in node.args} for _, nodes in parts]
    outputs = {value for _, value in graph.outputs}
    done = []
    for number, ((kind, pool, _), nodes) in enumerate(parts):
        made = [value for node in nodes for value in node.results]
        elsewhere = outputs.union(*readers[number + 1 :])
        args = dict.fromkeys(value for node in nodes for value in node.args)
        reads = tuple(value for value in args if value not in set(made))
        gives = tuple(value for value in made if value in elsewhere)
        done.append(Segment(kind, pool, nodes, reads, gives))
    return done


def _key(node: Node) -> tuple[SegmentKind, str, int]:
    """Return what neighbours must share to be in one segment; some nodes stand alone."""
    match node.op:
        case Constant():
            return SegmentKind.CONSTANTS, "", 0
        case Transfer():
            return SegmentKind.TRANSFERS, "", 0
        case ControlOp():
            return SegmentKind.CONTROL, "", id(node)
        case Generate():
            return SegmentKind.GENERATE, node.pool, id(node)
    return SegmentKind.OPS, node.pool, 0


def inner_graphs(graph: Graph) -> Iterable[Graph]:
    """Return this graph and those inside it that are walked; a loss belongs to its node."""
    yield graph
    for node in graph.nodes:
        for region in node.op.regions().values() if isinstance(node.op, ControlOp) else ():
            yield from inner_graphs(region)
