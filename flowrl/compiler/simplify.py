"""Remove what changes nothing, until nothing more goes."""

from collections.abc import Callable

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.dead_code import eliminate_dead_code
from flowrl.compiler.elision import elide_old_logprobs
from flowrl.compiler.identities import apply_identities
from flowrl.compiler.subexpressions import merge_subexpressions
from flowrl.ir.graph import Graph

STEPS: tuple[Callable[[Graph], Graph], ...] = (
    apply_identities,
    merge_subexpressions,
    elide_old_logprobs,
    eliminate_dead_code,
)


def simplify(graph: Graph, cluster: Cluster) -> Graph:
    """Apply arithmetic identities, common subexpressions, elision and dead code, to a fixed point.

    Requires: nothing. Ensures: none of the steps would remove a node.
    """
    size = -1
    while size != (size := _size(graph)):
        for step in STEPS:
            graph = step(graph)
    return graph


def _size(graph: Graph) -> int:
    return sum(len(inner.nodes) + len(inner.inputs) for inner in graph.nested())
