"""The best placement of a step's seats."""

from collections.abc import Sequence

from flowrl.compiler.search.bound import Bounds
from flowrl.compiler.search.branch import best
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.costs import Costs
from flowrl.compiler.search.found import Found, found
from flowrl.compiler.search.table import Table
from flowrl.compiler.search.tree import Tree
from flowrl.compiler.tasks import Task

FREE = Constraints()
"""Nothing is decided."""


def best_placement(
    tasks: Sequence[Task], costs: Costs, constraints: Constraints = FREE
) -> Found | None:
    """Return the placement of least step seconds, or None if nothing fits.

    Exact over this space: every partition of the seats into pools; every size of `space.sizes` for
    a pool, in one block of equal nodes, packed by `space.pack`; every layout and residency that
    `costs` offers; all that `constraints` keep. Of equals the one with fewest GPUs, then with
    fewest bytes moved over links, then the first in the order of the search, is taken: the same
    each time.

    Args:
        tasks: of a step, in program order.
        costs: seconds and bytes; asked once for each question.
        constraints: what the user has decided.
    """
    tree = Tree(Table(tasks, costs, constraints))
    bounds = Bounds(tree)
    node, effort = best(tree, bounds)
    return None if node is None else found(node, bounds, effort, constraints)
