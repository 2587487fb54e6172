"""Give every model value its layout."""

from collections.abc import Callable, Sequence

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import Graph, Op, Value
from flowrl.ir.types import ModelType, Type
from flowrl.ops.control import ControlOp
from flowrl.ops.model import ModelOp


def lay_out(graph: Graph, cluster: Cluster) -> Graph:
    """Give every model the layout of the use that its weights live for: training, or reading.

    An update keeps the layout, so it holds for all versions. Uses in other layouts get theirs by
    `insert_transfers`.

    Requires: nothing. Ensures: a model's type says how its weights lie, except where the cluster
    doesn't say; a layout that is set already stays.
    """
    uses: dict[str, set[str]] = {}
    for node in graph.walk():
        if isinstance(node.op, ModelOp) and isinstance(node.args[0].type, ModelType):
            uses.setdefault(node.args[0].type.role, set()).add(node.op.use)

    def laid(value: Value) -> Type:
        of = value.type
        if not isinstance(of, ModelType) or of.layout:
            return of
        home = cluster.home_of(of.role, uses.get(of.role, ()))
        return attrs.evolve(of, layout=cluster.layout_of(of.role, home))

    return _lay_out(graph, laid)


def _lay_out(graph: Graph, type_of_input: Callable[[Value], Type]) -> Graph:
    out = Rewriter(graph, type_of_input=type_of_input)
    for node in graph.nodes:
        args = [out[arg] for arg in node.args]
        inside = isinstance(node.op, ControlOp)
        out.copy(node, args, op=_regions(node.op, args) if inside else node.op)
    return out.done()


class _Types(dict[Value, Type]):
    """The types that models are handed in with; other values keep theirs."""

    def __call__(self, value: Value) -> Type:
        return self.get(value, value.type) if isinstance(value.type, ModelType) else value.type


def _regions(op: Op, args: Sequence[Value]) -> Op:
    """Return control flow whose nested graphs take models as they are handed in."""
    assert isinstance(op, ControlOp)
    made = {}
    for name, region in op.regions().items():
        outer = zip(region.inputs, op.handed_in(name, args), strict=False)
        made[name] = _lay_out(region, _Types((inner, arg.type) for (_, inner), arg in outer))
    return attrs.evolve(op, **made)  # type: ignore[misc]
