"""What the ops of a run took, beside what they were predicted to take."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import attrs

from flowrl.errors import DataError
from flowrl.ir.plan import Plan
from flowrl.report.columns import responses, seconds, size, table
from flowrl.report.files import reading
from flowrl.train.fit import SAMPLED
from flowrl.train.op_log import OPS, RECENT

HEAD = (
    *("op", "of", "pool", "predicted", "measured", "ratio"),
    *("bytes: predicted", "measured", "memory: predicted", "measured"),
)
UNPREDICTED = {0: "op", 1: "of", 2: "pool", 4: "seconds", 7: "bytes", 9: "memory"}
"""The columns that say something where no plan does, and their names there."""

HINT = "name the folder of a run with all that it wrote"

LEAST = 0.01
"""The share of a step above which an op that no plan predicts has a line of its own, as have
moves of weights."""


@attrs.frozen
class MeasuredOp:
    """An op of a run.

    Attributes:
        name: as printed.
        kind: what it does.
        role: of the model that it runs or moves; "" if there is none.
        pool: where it runs.
        seconds: in a step; the median of those that it ran in.
        bytes: that arrived at workers in a step; the median.
        memory: most bytes in use while it ran, if it runs a model; else 0.
    """

    name: str
    kind: str
    role: str
    pool: str
    seconds: float
    bytes: float
    memory: int

    @property
    def of(self) -> str:
        """Its kind and its role."""
        return f"{self.kind} {self.role}".rstrip()


@attrs.frozen
class Predicted:
    """What a plan predicts of an op; None where it says nothing."""

    seconds: float | None = None
    bytes: float | None = None
    memory: int | None = None


def measured_text(folder: Path) -> str:
    """Return a table of what the ops of a run took in a step, beside what its plan predicts.

    Args:
        folder: of a run that is done or going on.

    Raises:
        DataError: the folder has no records of ops, or no plan, or one can't be read.
    """
    return "\n".join(_lines(folder))


def _lines(folder: Path) -> Iterator[str]:
    steps, ops = _read(folder)
    with reading(folder / "plan.json", HINT):
        plan = Plan.from_json((folder / "plan.json").read_text())
    predicted = _predicted(plan.forecast)
    beside = f"beside the plan for {plan.machines}" if plan.forecast else "nothing is predicted"
    yield f"{plan.body['name']}: medians of {steps} step{'s' * (steps != 1)}, {beside}"
    *each, whole = ops
    shown = [op for op in each if op.name in predicted or _matters(op, whole)]
    rows = [_row(op, predicted.get(op.name, Predicted())) for op in shown]
    others = [op for op in each if op not in shown]
    if others:
        rows.append(_row(_together(others), Predicted()))
    rows.append(_row(whole, predicted.get("", Predicted())))
    if not plan.forecast:
        rows = [tuple(row[column] for column in UNPREDICTED) for row in rows]
        yield from table([tuple(UNPREDICTED.values()), *rows], right=range(3, len(UNPREDICTED)))
    else:
        yield from table([HEAD, *rows], right=range(3, len(HEAD)))
        yield from _lengths(folder, plan.forecast["tasks"])


def _lengths(folder: Path, tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how long responses were: no profile makes up for lengths that were not expected."""
    records = _records(folder / "metrics.jsonl")
    sampled = [record[SAMPLED] for record in records if SAMPLED in record][-RECENT:]
    sequences = sum(t["sequences"] * t["times"] for t in tasks if t["kind"] == "generate")
    if sampled and sequences:
        yield responses(sum(sampled) / len(sampled) / sequences)


def _matters(op: MeasuredOp, whole: MeasuredOp) -> bool:
    """Return whether an op takes long, or moves weights."""
    return op.seconds > LEAST * whole.seconds or (op.bytes > 0 and op.role != "")


def _together(ops: Sequence[MeasuredOp]) -> MeasuredOp:
    took, moved = sum(op.seconds for op in ops), sum(op.bytes for op in ops)
    return MeasuredOp("", f"{len(ops)} other op{'s' * (len(ops) != 1)}", "", "", took, moved, 0)


def _read(folder: Path) -> tuple[int, list[MeasuredOp]]:
    """Return the number of the last steps that are read, and their ops, the whole step last.

    Raises:
        DataError: there are none, or they can't be read.
    """
    records = _records(folder / OPS) if (folder / OPS).is_file() else []
    steps = [record["step"] for record in records if not record["op"]][-RECENT:]
    if not steps:
        raise DataError(
            f"`{folder}` has no records of ops",
            hint=f"name the folder of a run: with `[log] jsonl` it writes `{OPS}` at each step",
        )
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if steps[0] <= record["step"] <= steps[-1]:
            found.setdefault(record["op"], []).append(record)
    whole = found.pop("")
    return len(steps), [*(_op(name, of) for name, of in found.items()), _op("", whole)]


def _records(file: Path) -> list[dict[str, Any]]:
    """Return the records of a file, but for one that is cut off: its run goes on, or was ended."""
    with reading(file, HINT):
        return [json.loads(line) for line in file.read_text().rpartition("\n")[0].splitlines()]


def _op(name: str, records: Sequence[Mapping[str, Any]]) -> MeasuredOp:
    first = records[0]
    return MeasuredOp(
        name,
        first["kind"],
        first["role"],
        first["pool"],
        median(record["seconds"] for record in records),
        median(record["bytes"] for record in records),
        max(record["memory"] for record in records) if first["role"] or not name else 0,
    )


def _predicted(forecast: Mapping[str, Any]) -> dict[str, Predicted]:
    """Return what a forecast says of each op; "" is the step."""
    if not forecast:
        return {}
    memory = {
        of["seat"]: sum(of["items"].values()) + sum(of["asleep"].values())
        for of in forecast["memory"]
    }
    tasks = {
        task["op"]: Predicted(task["seconds"], None, memory[_seat(task["seat"], memory)])
        for task in forecast["tasks"]
    }
    edges = {edge["name"]: Predicted(edge["seconds"], edge["bytes"]) for edge in forecast["edges"]}
    moved = sum(edge["bytes"] for edge in forecast["edges"]) or None
    return {**tasks, **edges, "": Predicted(forecast["seconds"], moved, max(memory.values()))}


def _seat(seat: str, memory: Mapping[str, int]) -> str:
    """Return the seat that a task takes: without a place of its own, that of training."""
    return seat if seat in memory else f"{seat.partition('.')[0]}.train"


def _row(op: MeasuredOp, predicted: Predicted) -> tuple[str, ...]:
    ratio = op.seconds / predicted.seconds if predicted.seconds else None
    return (
        op.name,
        op.of,
        op.pool,
        *(_shown(predicted.seconds, seconds), seconds(op.seconds)),
        "-" if ratio is None else f"{ratio:.3g}",
        *(_shown(predicted.bytes, size), size(op.bytes) if op.bytes else "-"),
        *(_shown(predicted.memory, size), size(op.memory) if op.memory else "-"),
    )


def _shown(x: float | None, as_text: Any) -> str:
    return "-" if x is None else as_text(x)
