"""A plan as text: placement, seconds, what moves, memory, and what to look at first."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff

from flowrl.compiler.emit import emit
from flowrl.compiler.forecast import Forecast, TaskForecast, forecast
from flowrl.compiler.occupancy import Occupancy
from flowrl.compiler.planning import Planned
from flowrl.compiler.residency import residency
from flowrl.config.checks.inert import unused
from flowrl.config.placement.bases import shared_bases
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.weights import sync_sentences
from flowrl.config.planned import plan_run
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.report.actions import order_lines, residency_lines
from flowrl.report.columns import seconds, size, table
from flowrl.report.placement import pool_lines

BAR = 40
"""Characters of a GPU's whole memory."""

LETTERS = {
    "weights": "W",
    "gradients": "G",
    "optimizer": "O",
    "activations": "A",
    "kv_cache": "K",
    "engine": "E",
    "buffers": "B",
}
ASLEEP = "z"
SPENT = {
    "compute": "in matrices",
    "memory": "on memory traffic",
    "network": "waiting for links",
    "overhead": "launching and scheduling",
    "tail": "waiting for the longest tenth of the sequences",
}


def plan_text(file: str, sets: Sequence[str]) -> str:
    """Return the plan of a run file; models aren't loaded, and no GPU is needed.

    Args:
        file: the run file.
        sets: `key=value`, laid over it.

    Raises:
        FlowrlError: the run file or its program is wrong, or nothing fits.
    """
    run = load_run_file(file, sets)
    return "\n".join(plan_lines(run, plan_run(run)[1]))


def plan_json(file: str, sets: Sequence[str]) -> str:
    """Return the plan of a run file as JSON: what `plan_text` prints, and the lowered graph.

    Raises:
        FlowrlError: as `plan_text`.
    """
    run = load_run_file(file, sets)
    traced, plan = plan_run(run)
    predicted = forecast(plan).as_data()
    return emit(
        plan.graph,
        plan.cluster,
        traced.sampling,
        machines=str(plan.target.machines),
        actions=residency(plan),
        forecast=predicted,
        notes=unused(run, plan.graph),
    ).to_json()


def plan_difference(a: str, b: str, sets: Sequence[str]) -> str:
    """Return the lines in which the plans of two run files differ, as a unified diff."""
    first, second = (plan_text(file, sets).splitlines() for file in (a, b))
    found = "\n".join(unified_diff(first, second, a, b, lineterm="", n=1))
    return found or f"{a} and {b} have the same plan."


def plan_lines(run: RunFile, plan: Planned) -> Iterator[str]:
    """Yield what the plan of a run file says.

    Placement, seconds, what moves, how weights come to what samples, memory, order, bottleneck.
    """
    predicted = forecast(plan)
    yield f"{plan.graph.name} on {plan.target.machines}: {seconds(predicted.seconds)} a step"
    yield from ("", *pool_lines(plan), *shared_bases(plan.graph), *unused(run, plan.graph))
    yield from ("", *_tasks(predicted))
    yield from ("", *_edges(predicted))
    yield from ("", *sync_sentences(run, Placed.by_plan(plan)))
    yield from _evaluation(run, predicted)
    yield from ("", *_memory(predicted.memory))
    yield from ("", *residency_lines(plan))
    yield from ("", *order_lines(plan, predicted))
    yield from ("", *_phases(plan, predicted), "", bottleneck(predicted))


def _tasks(predicted: Forecast) -> Iterator[str]:
    head = ("op", "line", "pool", "layout", "from", "seconds", *predicted.tasks[0].spent.terms)
    rows = [
        (
            str(each.task),
            each.task.loc,
            each.pool,
            each.layout,
            seconds(each.start),
            *(seconds(x) for x in (each.end - each.start, *each.spent.terms.values())),
        )
        for each in predicted.tasks
    ]
    yield from table([head, *rows], right=range(4, 11))


def _edges(predicted: Forecast) -> Iterator[str]:
    head = ("edge", "of", "from", "to", "bytes", "of bound", "seconds")
    rows = [
        (
            edge.name,
            edge.what,
            f"{edge.source} {edge.layouts[0]}".rstrip(),
            f"{edge.target} {edge.layouts[1]}".rstrip(),
            size(edge.bytes),
            f"{edge.ratio:.2f}" if edge.ratio is not None else "",
            seconds(edge.seconds),
        )
        for edge in predicted.edges
    ]
    yield from table([head, *rows], right=range(4, 7)) if rows else ["nothing moves"]


def _evaluation(run: RunFile, predicted: Forecast) -> Iterator[str]:
    """Yield what an evaluation takes, if it has an engine of its own."""
    its, table = predicted.evaluation, run.eval
    if its is None or table is None:
        return
    given = "" if table.prompts else ", as many as a step's (`[eval]` gives no `prompts`)"
    yield ""
    yield (
        f"an evaluation of {its.prompts:g} prompts{given}: {its.sequences:g} samples take "
        f"{seconds(its.seconds)}, and their weights {seconds(its.weight_seconds)} "
        f"({size(its.bytes)} over links)"
    )


def _memory(memory: Iterable[Occupancy]) -> Iterator[str]:
    legend = ", ".join(f"{letter} {name.replace('_', ' ')}" for name, letter in LETTERS.items())
    yield f"memory of the fullest GPU while each works ({legend}, {ASLEEP} asleep)"
    rows = []
    for of in memory:
        items = [f"{name.replace('_', ' ')} {size(n)}" for name, n in of.items.items() if n]
        others = [f"{seat} {size(n)}" for seat, n in of.asleep.items() if n]
        asleep = f"; asleep: {', '.join(others)}" if others else ""
        used = f"{size(of.total)} of {size(of.capacity)}"
        host = f"; on the host: {size(of.host)}" if of.host else ""
        rows.append((f"  {of.seat}", f"[{_bar(of)}]", used, ", ".join(items) + asleep + host))
    yield from table(rows)


def _bar(of: Occupancy) -> str:
    """Return a character for each fortieth of the memory, by what fills it."""
    parts = [(LETTERS[name], n) for name, n in of.items.items()]
    text, filled = "", 0
    for letter, n in [*parts, (ASLEEP, sum(of.asleep.values()))]:
        filled += n
        text += letter * (round(BAR * filled / of.capacity) - len(text))
    return text.ljust(BAR, ".")


def _phases(plan: Planned, predicted: Forecast) -> Iterator[str]:
    """Yield the seconds of each pool by phase; what is left, it waits."""
    for pool in plan.cluster.pools:
        its = [each for each in predicted.tasks if each.pool == pool.name]
        spent: dict[str, float] = {}
        for each in its:
            phase = each.task.phase
            spent[phase] = spent.get(phase, 0.0) + each.end - each.start
        if not its:
            continue
        timeline = plan.found.timeline
        spent["weights"] = sum(
            timeline.computes[i] - timeline.starts[i]
            for i, each in enumerate(predicted.tasks)
            if each.pool == pool.name
        )
        spent["waiting"] = max(0.0, round(predicted.seconds - sum(spent.values()), 9))
        shown = ", ".join(f"{name} {seconds(s)}" for name, s in spent.items())
        yield f"pool {pool.name}, seconds a step: {shown}"


def bottleneck(predicted: Forecast) -> str:
    """Return in a sentence which op takes longest, and what it spends that on."""

    def took(each: TaskForecast) -> float:
        return each.end - each.start

    longest = max(predicted.tasks, key=took)
    terms = longest.spent.terms
    most = max(terms, key=lambda term: terms[term])
    share = terms[most] / longest.spent.seconds if longest.spent.seconds else 0.0
    return (
        f"Bottleneck: `{longest.task}` ({longest.task.loc}) takes "
        f"{took(longest) / predicted.seconds:.0%} of the step, {share:.0%} of that {SPENT[most]}."
    )
