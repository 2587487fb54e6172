"""Let a frozen model be the base under another one's adapter, where it is the same model."""

from collections.abc import Iterator

from flowrl.compiler.cluster import Cluster
from flowrl.errors import Location
from flowrl.ir.builder import Rewriter
from flowrl.ir.graph import Graph
from flowrl.ops.model import Base
from flowrl.ops.uses import Uses, uses_of


def share_bases(graph: Graph, cluster: Cluster) -> Graph:
    """Read a frozen model off the base of one with an adapter that was loaded from the same folder.

    An adapter's base never changes, so with the adapter off it gives the same numbers in any
    version: to the bit, unless it is a float32 folder's that bfloat16 has rounded. The folder is
    loaded once, and 0 more bytes are held.

    Requires: nothing. Ensures: no model is read whose weights `cluster.bases` says another one
    has, if it is only run forward as a language model, in the pool that trains the other as one.
    """
    shared = dict(_shared(graph, cluster))
    out = Rewriter(graph)
    for base, (role, loc) in shared.items():
        model = out[graph.input(role)]
        (out.new[graph.input(base)],) = out.add(Base(base), [model], loc, model.pool)
    for node in graph.nodes:
        out.copy(node)
    return out.done()


def _shared(graph: Graph, cluster: Cluster) -> Iterator[tuple[str, tuple[str, Location]]]:
    """Yield the roles whose model another role has, with that role and where they are read."""
    uses = uses_of(graph)
    for base, roles in cluster.bases.items():
        its = uses.get(base)
        if its is None or its.kinds != {"score"} or _heads(its) != {"lm"}:
            continue
        place = cluster.pool_of(base, "score")
        for role in (role for role in roles if role in uses):
            at = {cluster.pool_of(role, use) for use in ("score", "train")}
            if uses[role].trains and "lm" in _heads(uses[role]) and at == {place}:
                yield base, (role, its.nodes[0].loc)
                break


def _heads(uses: Uses) -> set[str]:
    return {head for node in uses.nodes for head in node.op.heads()}  # type: ignore[attr-defined]
