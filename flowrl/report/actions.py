"""What happens between the ops of a plan, as text: who sleeps and wakes, and in which order."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from flowrl.compiler.forecast import Forecast
from flowrl.compiler.planning import Planned
from flowrl.compiler.residency import residency
from flowrl.compiler.schedule import backlogs, check_order, schedule
from flowrl.ir.action import Action, Does
from flowrl.report.columns import seconds, size, table


def residency_lines(plan: Planned) -> Iterator[str]:
    """Yield what uses of models do before each op; in brackets, what a GPU has more in use."""
    ops = {task.name: str(task) for task in plan.tasks}
    head = ("before", "times", "what happens", "seconds")
    rows = []
    for (before, _), group in groupby(residency(plan), key=lambda a: (a.before, a.turns)):
        its = list(group)
        took = sum(action.seconds * action.times for action in its)
        rows.append((ops[before], str(its[0].times), "; ".join(map(sentence, its)), seconds(took)))
    nothing = ["no use of a model makes room for another"]
    yield from table([head, *rows], right=(1, 3)) if rows else nothing


def order_lines(plan: Planned, predicted: Forecast) -> Iterator[str]:
    """Yield what is proved of collectives, and of values between pools.

    Raises:
        ProgramError: ranks would wait for each other, or nothing bounds an edge.
    """
    ranks = schedule(plan.graph, plan.cluster)
    check_order(ranks)
    yield f"collectives: {ranks.collectives} in one order on {ranks.size} ranks"
    largest = next(iter(backlogs(predicted)), None)
    if largest:
        yield f"in flight between pools: at most {size(largest.bytes)}, {largest}"


def unused_lines(plan: Planned) -> Iterator[str]:
    """Yield the GPUs that no pool has, if there are any."""
    used = {rank for pool in plan.cluster.pools for rank in pool.ranks}
    unused = [rank for rank in range(plan.target.machines.size) if rank not in used]
    if unused:
        kinds = dict.fromkeys(plan.target.machines.gpu(rank).name for rank in unused)
        yield f"unused: {len(unused)} {' and '.join(kinds)}, {_ranks(unused)}"


def sentence(action: Action) -> str:
    """Return what a seat does, in words; in brackets, what the GPU has more or less in use."""
    moved = size(action.moved)
    change = f"{'+' if action.bytes > 0 else '-'}{size(abs(action.bytes))}"
    kept = f"offloads {moved} to the host" if action.moved else "leaves, the host has a copy"
    by = f"by {action.by} ({moved} over links)" if action.by else f"({moved} over links)"
    return {
        Does.SLEEP: f"{action.seat} sleeps ({change})",
        Does.OFFLOAD: f"{action.seat} {kept} ({change})",
        Does.DROP: f"{action.seat} is dropped ({change})",
        Does.WAKE: f"{action.seat} wakes ({change})",
        Does.LOAD: f"{action.seat} loads {moved} from the host ({change})",
        Does.BRING: f"{action.seat} gets its weights {by}",
    }[action.does]


def _ranks(ranks: Sequence[int]) -> str:
    """Return ranks as runs: `ranks 4-7, 12`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    shown = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"
