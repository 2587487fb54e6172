"""Leave out the forward pass for old log-probabilities that the update makes anyway."""

from collections.abc import Mapping

import attrs

from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import CAPTURED, NEW, Graph, Node, Value
from flowrl.ir.regions import map_regions
from flowrl.ir.signature import Signature
from flowrl.ops.model import Logprobs, Update
from flowrl.ops.tensor import Per, Rule, TensorOp


def elide_old_logprobs(graph: Graph) -> Graph:
    """Read `ops.logprobs(policy, rollouts)` off the first update of that version of the policy.

    In that update the forward pass gives the same numbers (to 1e-6 in float32). Log-probabilities
    of the engine that sampled are never touched: they may differ.

    Requires: nothing. Ensures: no loss reads log-probabilities that a forward pass computes for
    the rows, the temperature and the version that it trains. The pass itself is dead code then,
    unless something else reads it.
    """
    made = {value: node for node in graph.nodes for value in node.results}
    out = Rewriter(graph)
    for node in graph.nodes:
        op = map_regions(node.op, elide_old_logprobs)
        if isinstance(op, Update) and "logprobs" in op.reads and not op.passes:
            op = attrs.evolve(op, loss=_read_new(op.loss, _recomputed(node, made)))
        out.copy(node, op=op)
    return out.done()


def _recomputed(node: Node, made: Mapping[Value, Node]) -> set[str]:
    """Return the captured inputs of the loss that are what `new.logprobs` will be."""
    assert isinstance(node.op, Update)
    same = set()
    for index, value in enumerate(node.op.captured("loss", node.args)):
        source = made.get(value)
        if source is not None and isinstance(source.op, Logprobs):
            equal = source.op.temperature == node.op.temperature
            if equal and all(a is b for a, b in zip(source.args, node.args, strict=False)):
                same.add(f"{CAPTURED}{index}")
    return same


def _read_new(loss: Graph, same: set[str]) -> Graph:
    if not same:
        return loss
    out = Rewriter(loss)
    logprobs = loss.input(f"{NEW}logprobs")
    detach = TensorOp(
        "arithmetic:detach",
        Signature.parse("f32[...] -> f32[...]", ("a",)),
        Per.TOKEN,
        rule=Rule.KEEP,
    )
    loc = next(node.loc for node in loss.nodes)
    (constant,) = out.add(detach, [out[logprobs]], loc)
    for name in same:
        out.new[loss.input(name)] = constant
    for node in loss.nodes:
        out.copy(node)
    return out.done()
