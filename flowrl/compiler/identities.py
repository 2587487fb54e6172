"""Arithmetic with 0 and 1."""

from collections.abc import Sequence

import attrs

from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.regions import map_regions
from flowrl.ir.signature import Signature
from flowrl.ops.tensor import Constant, TensorOp


def apply_identities(graph: Graph) -> Graph:
    """Replace x + 0, x - 0, 1 x and x / 1 by x, where 0 may also be 0 y for any y.

    A coefficient of 0 switches a term off, whatever the term is, even NaN: then dead code
    removes it and the models that only it reads.

    Requires: nothing. Ensures: none of these is left where x has the type of the result.
    """
    return _Identities(graph).run()


class _Identities:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.out = graph, Rewriter(graph)
        self.numbers: dict[Value, float] = {}
        self.zeros: set[Value] = set()

    def run(self) -> Graph:
        for node in self.graph.nodes:
            args = [self.out[arg] for arg in node.args]
            same = self._same(node, args)
            if same is not None:
                self.out.new[node.results[0]] = same
            else:
                self._copy(node, args)
        return self.out.done()

    def _copy(self, node: Node, args: list[Value]) -> None:
        op = map_regions(node.op, apply_identities)
        if isinstance(op, TensorOp) and op.optional and self._is(args[-1], 0):
            args, op = args[:-1], _without_last(op)
        results = self.out.copy(node, args, op=op)
        if isinstance(op, Constant):
            self.numbers[results[0]] = op.value
        if op.name == "mul" and any(self._is(arg, 0) for arg in args):
            self.zeros.update(results)

    def _same(self, node: Node, args: Sequence[Value]) -> Value | None:
        """Return the argument that the node is equal to, if there is one."""
        if not isinstance(node.op, TensorOp) or len(args) != 2:
            return None
        a, b = args
        neutral = {"add": 0, "sub": 0, "mul": 1, "div": 1}.get(node.op.name)
        if neutral is None:
            return None
        if self._is(b, neutral) and a.type == node.results[0].type:
            return a
        swaps = node.op.name in ("add", "mul")
        return b if swaps and self._is(a, neutral) and b.type == node.results[0].type else None

    def _is(self, value: Value, number: float) -> bool:
        return self.numbers.get(value) == number or (number == 0 and value in self.zeros)


def _without_last(op: TensorOp) -> TensorOp:
    rule = op.signature
    shorter = Signature(rule.args[:-1], rule.results, rule.names[:-1])
    return attrs.evolve(op, signature=shorter, optional=False)
