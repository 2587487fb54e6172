"""What is only reported: of no rows it is no number, where training goes on with 0."""

from torch import Tensor

from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.types import f32
from flowrl.ops.move import Transfer
from flowrl.ops.tensor import TensorOp

STATISTICS = frozenset(f"arithmetic:{name}" for name in ("mean", "std", "min", "max"))
"""Functions that, as all of `flowrl.functional.metrics`, say nothing of no numbers."""


def reported(graph: Graph) -> frozenset[Node]:
    """Return the statistics of rows of which nothing but a graph's metrics is made.

    A step whose groups were all dropped has no mean reward: it isn't 0. What trains, or is carried
    to the next step, reads 0 all the same; and a scan of no turns has a loss of 0, as an update of
    no rows has.
    """
    used: set[Value] = {value for name, value in graph.outputs if not name.startswith("metrics.")}
    found = set()
    for node in reversed(graph.nodes):
        if not isinstance(node.op, TensorOp | Transfer) or not used.isdisjoint(node.results):
            used.update(node.args)
        elif isinstance(node.op, TensorOp) and _of_rows(node.op, node):
            found.add(node)
    return frozenset(found)


def _of_rows(op: TensorOp, node: Node) -> bool:
    """Whether an op is a statistic of rows, not of turns."""
    named = op.function in STATISTICS or op.function.startswith("metrics:")
    numbers = all(result.type == f32() for result in node.results)
    return named and numbers and all(axis.name != "turn" for axis in node.args[0].axes)


def is_empty(value: Ragged | Tensor) -> bool:
    """Whether a value has no numbers."""
    return isinstance(value, Ragged) and not value.values.numel()
