"""Branch and bound over the tree of decisions."""

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import count

import attrs

from flowrl.compiler.search.bound import Bounds, Key
from flowrl.compiler.search.tree import Node, Tree


@attrs.frozen
class Effort:
    """How far a search went, in nodes of the tree.

    Attributes:
        visited: whose children were looked at.
        refused: that don't fit.
        left: that were bounded and never looked at: the best is better.
    """

    visited: int
    refused: int
    left: int


def best(tree: Tree, bounds: Bounds) -> tuple[Node | None, Effort]:
    """Return the best placement, or None if nothing fits, and how far the search went.

    The node with the least bound is opened first, the deeper of equals, then the earlier
    (best-first branch and bound; Lawler and Wood 1966, Operations Research 14(4)). A complete
    node's bound is its own cost, so the first that comes up is the best of all.
    """
    number = count()
    heap: list[tuple[Key, int, int, Node]] = []
    visited = refused = 0

    def push(nodes: Iterable[Node]) -> int:
        worse = 0
        for node in nodes:
            key = bounds.key(node)
            if key is None:
                worse += 1
            else:
                heappush(heap, (key, -node.depth, next(number), node))
        return worse

    refused += push(tree.roots())
    while heap:
        *_, node = heappop(heap)
        if node.priced < len(node.options):  # planning a reshard takes long: only where it counts
            refused += push([attrs.evolve(node, priced=len(node.options))])
            continue
        if tree.complete(node):
            return node, Effort(visited, refused, len(heap))
        visited += 1
        refused += push(tree.children(node))
    return None, Effort(visited, refused, 0)
