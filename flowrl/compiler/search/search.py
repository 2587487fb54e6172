"""The search of a placement for a target."""

from collections.abc import Sequence

from flowrl.compiler.layouts import check_fit
from flowrl.compiler.search.best import FREE, best_placement
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.found import Found
from flowrl.compiler.search.models import ModelCosts
from flowrl.compiler.search.refusal import refusal
from flowrl.compiler.target import Target
from flowrl.compiler.tasks import Task, seats_of


def search(tasks: Sequence[Task], target: Target, constraints: Constraints = FREE) -> Found:
    """Return the placement of least step seconds; see `best_placement` for the space searched.

    Args:
        tasks: of a step, in program order; see `tasks_of`.
        target: machines, models, the work of a step, measured speeds.
        constraints: what the user has decided.

    Raises:
        ProgramError: nothing fits. It itemises the peak of the placement that lacks least, and
            names the cheapest fix of those that the same search found to help.
        RunFileError: constraints name a seat that no task takes or a layout that its model can't
            have, or allow no placement at all.
    """
    constraints.check(seats_of(tuple(tasks)))
    for seat, layout in constraints.layouts.items():
        check_fit(target.shapes[seat.role], layout)
    found = best_placement(tasks, ModelCosts(target, tuple(tasks)), constraints)
    if found is None:
        raise refusal(tasks, target, constraints)
    return found
