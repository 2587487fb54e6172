"""Where samples of a cut distribution are trained on."""

from collections.abc import Iterator, Mapping

from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.nesting import sources
from flowrl.ops.buffer import Append
from flowrl.ops.control import SampleUntil
from flowrl.ops.data import Take
from flowrl.ops.model import Generate, Update
from flowrl.ops.tensor import Rule, TensorOp

Draws = Mapping[Value, Node]
"""The draw that each value of tokens is of, or is selected from."""


def uncorrected(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Yield each update, and the draw, that trains on filtered samples without any ratio."""
    yield from _uncorrected(graph, {})


def _uncorrected(graph: Graph, given: Draws) -> Iterator[tuple[Node, Node]]:
    draws = dict(given)
    for node in graph.nodes:
        if isinstance(node.op, Update):
            draw = draws.get(node.args[2])
            if draw and "logprobs" in node.op.reads and not _has_ratio(node.op.loss):
                yield node, draw
            continue
        draws |= _drawn(node, draws)
        for name, region in node.op.regions().items():
            outer = sources(node, name)
            inner = {value: draws[out] for value, out in outer.items() if out in draws}
            yield from _uncorrected(region, inner)


def _drawn(node: Node, draws: Draws) -> Draws:
    op = node.op
    if isinstance(op, Generate):
        return {node.results[0]: node} if _is_filtered(op) else {}
    if isinstance(op, Take | Append) and node.args[1] in draws:
        return {node.results[0]: draws[node.args[1]]}
    if isinstance(op, SampleUntil):
        return _kept(node, op.draw)
    return {}


def _kept(node: Node, draw: Graph) -> Draws:
    """Return the draws of what `sample_until` hands out."""
    inner: dict[Value, Node] = {}
    for each in draw.nodes:
        inner |= _drawn(each, inner)
    assert isinstance(node.op, SampleUntil)
    pairs = zip(node.results, node.op.handed_out(), strict=True)
    return {result: inner[value] for result, value in pairs if value in inner}


def _is_filtered(op: Generate) -> bool:
    return op.temperature == 0 or op.top_p < 1 or op.top_k > 0 or op.min_tokens > 0


def _has_ratio(loss: Graph) -> bool:
    rules = (node.op.rule for node in loss.nodes if isinstance(node.op, TensorOp))
    return Rule.SAME_MODEL in rules
