"""The passes, in order. To add one: write `compiler/<name>.py` and list it here."""

from collections.abc import Callable

from flowrl.compiler.bases import share_bases
from flowrl.compiler.cluster import Cluster
from flowrl.compiler.layout import lay_out
from flowrl.compiler.losses import split_losses
from flowrl.compiler.place import place
from flowrl.compiler.simplify import simplify
from flowrl.compiler.transfer import insert_transfers
from flowrl.ir.graph import Graph
from flowrl.ir.verify import verify

Pass = Callable[[Graph, Cluster], Graph]
Watcher = Callable[[str, Graph], None]

PASSES: tuple[Pass, ...] = (simplify, share_bases, split_losses, place, lay_out, insert_transfers)


def compile_graph(graph: Graph, cluster: Cluster, watch: Watcher | None = None) -> Graph:
    """Run every pass, verifying the graph after each; `watch` sees each result by name."""
    verify(graph)
    for run in PASSES:
        graph = verify(run(graph, cluster))
        if watch is not None:
            watch(run.__name__, graph)
    return graph
