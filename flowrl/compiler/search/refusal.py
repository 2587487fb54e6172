"""What a user reads when nothing fits: what lacks, and the cheapest change that helps."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from flowrl.compiler.gigabytes import gigabytes, itemised
from flowrl.compiler.search.best import best_placement
from flowrl.compiler.search.constraints import Constraints
from flowrl.compiler.search.fixes import Fix, all_small_fixes, more_gpus, small_fixes
from flowrl.compiler.search.found import Found
from flowrl.compiler.search.models import ModelCosts
from flowrl.compiler.search.nearest import Peak, nearest
from flowrl.compiler.target import Target
from flowrl.compiler.tasks import Task
from flowrl.errors import FlowrlError, ProgramError, RunFileError

Helped = tuple[Fix, Found]

SHOWN = 3
"""How many fixes an error names."""


def refusal(tasks: Sequence[Task], target: Target, constraints: Constraints) -> FlowrlError:
    """Return the error for a step that fits nowhere.

    It itemises the placement that lacks least. Every fix is tried by the same exact search; the
    cheapest is the one with the fastest step on the same GPUs, or else the fewest more GPUs.
    """
    peak = nearest(tasks, ModelCosts(target, tuple(tasks)), constraints)
    if peak is None:
        return RunFileError(
            f"no placement on {target.machines} keeps what is fixed: {constraints}",
            hint="check that pools have their layouts' sizes, and that the GPUs suffice for all; a "
            "pool over several nodes takes them whole",
        )
    memory = "a GPU" if peak.working else "host memory a GPU"
    return ProgramError(
        f"the step doesn't fit on {target.machines}: of all placements, the closest fit "
        f"needs {gigabytes(peak.lacks)} more than the {gigabytes(peak.capacity)} of {memory}",
        where=_where(peak),
        hint=_hint(_helped(tasks, target, constraints)),
    )


def _helped(tasks: Sequence[Task], target: Target, constraints: Constraints) -> list[Helped]:
    """Return the fixes that help, the cheapest first."""
    helped = list(_helping(tasks, small_fixes(target, constraints)))
    if helped:
        return sorted(helped, key=lambda its: its[1].seconds)
    stronger = [all_small_fixes(target, constraints), *more_gpus(target, constraints)]
    return list(islice(_helping(tasks, stronger), 1))


def _helping(tasks: Sequence[Task], fixes: Iterable[Fix]) -> Iterator[Helped]:
    """Yield the fixes with which something fits, each when it is asked for."""
    for fix in fixes:
        costs = ModelCosts(fix.target, tuple(tasks))
        found = best_placement(tasks, costs, fix.constraints)
        if found and not any(costs.lacks(found.seated(seat)) for seat in found.seats):
            yield fix, found


def _where(peak: Peak) -> str:
    gpus = f"{peak.gpus} GPU{'s' if peak.gpus > 1 else ''}"
    rows = [f"  on {gpus}, while {peak.working} works: {itemised(peak.items)}"]
    if not peak.working:
        rows = [f"  in the host memory of {gpus}: {itemised(seats=peak.others)}"]
    elif peak.others:
        rows.append(f"  and meanwhile {itemised(seats=peak.others)}")
    return "\n".join(rows)


def _hint(helped: Sequence[Helped]) -> str:
    if not helped:
        return "take smaller models, or GPUs with more memory"
    (fix, found), *others = helped[:SHOWN]
    text = f"{fix.text}: a step of {found.seconds:.3g} s"
    also = "; or ".join(f"{other.text} ({its.seconds:.3g} s)" for other, its in others)
    return f"{text}; or {also}" if also else text
