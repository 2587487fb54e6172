"""Learning curves of runs side by side, over steps and over seconds.

    python benchmarks/chain_sum/curves.py [--out FOLDER] NAME=FOLDER ...

A folder is that of a run (`metrics.jsonl`) or of trl_grpo.py (`trl.jsonl`). Seconds are those of
training: evaluations and the start of an engine are left out on both sides. It prints tables of
held-out reward, what the runs' checks found, and seconds and memory of each op beside the plan's.
FOLDER, $OUT if not given, gets them as curves.md, and the numbers as curves.json.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import attrs

from flowrl.report.measured import measured_text

GAPS = ("logprob_gap_mean", "logprob_gap_max")
TIMES = 8
"""Rows of the table over seconds."""


@attrs.frozen
class Reading:
    """The held-out reward after some training; `seconds` are those of steps alone."""

    step: int
    seconds: float
    sampled: float
    greedy: float


@attrs.frozen
class Curve:
    """What one run came to.

    Attributes:
        name: of the run.
        folder: of the run.
        readings: of held-out rewards, in order.
        steps: seconds of each step.
        memory: most bytes in use on the GPU.
        checks: the greatest of each gap between engine and trainer; empty for a run by others.
    """

    name: str
    folder: Path
    readings: tuple[Reading, ...]
    steps: tuple[float, ...]
    memory: int
    checks: dict[str, float]

    @classmethod
    def read(cls, name: str, folder: Path) -> "Curve":
        """Read a folder."""
        theirs = folder / "trl.jsonl"
        return _by_trl(name, theirs) if theirs.exists() else _by_flowrl(name, folder)

    def at_step(self, step: int) -> Reading | None:
        """Return the reading after a step."""
        return next((each for each in self.readings if each.step == step), None)

    def by(self, seconds: float) -> Reading | None:
        """Return the last reading that there was after so many seconds of training."""
        return next((each for each in self.readings[::-1] if each.seconds <= seconds), None)


def _by_trl(name: str, file: Path) -> Curve:
    rows = _records(file)
    until = [row["seconds"] for row in rows if row["step"]]
    steps = [now - before for before, now in zip([0.0, *until], until, strict=False)]
    readings = [
        Reading(row["step"], row["seconds"], row["heldout"], row["greedy"])
        for row in rows
        if "heldout" in row
    ]
    memory = max(row.get("memory", 0) for row in rows)
    return Curve(name, file.parent, tuple(readings), tuple(steps), memory, {})


def _by_flowrl(name: str, folder: Path) -> Curve:
    records = _records(folder / "metrics.jsonl")
    trained = [record for record in records if "seconds" in record]
    steps = [record["seconds"] for record in trained]
    until = {0: 0.0} | dict(
        zip((record["step"] for record in trained), accumulate(steps), strict=True)
    )
    readings = [
        Reading(each["step"], until[each["step"]], each["eval/reward"], each["eval/greedy"])
        for each in records
        if "eval/reward" in each
    ]
    found = {gap: [each.get(f"policy/{gap}") for each in trained] for gap in GAPS}
    checks = {gap: max(x for x in of if x is not None) for gap, of in found.items() if any(of)}
    memory = max(op["memory"] for op in _records(folder / "ops.jsonl"))
    return Curve(name, folder, tuple(readings), tuple(steps), memory, checks)


def _records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def report(curves: Sequence[Curve]) -> str:
    """Return all tables, in Markdown."""
    parts = ["## Held-out reward by step, sampled (greedy)", _over_steps(curves)]
    parts += ["## Held-out reward by seconds of training, sampled (step)", _over_seconds(curves)]
    parts += ["## Runs", _runs(curves)]
    for each in curves:
        if (each.folder / "ops.jsonl").exists():
            parts += [f"## {each.name}: ops beside the plan", _measured(each.folder)]
    return "\n\n".join(parts) + "\n"


def _over_steps(curves: Sequence[Curve]) -> str:
    steps = sorted({each.step for curve in curves for each in curve.readings})
    rows = (
        [str(step), *(_cell(at, greedy=True) for at in (c.at_step(step) for c in curves))]
        for step in steps
    )
    return _table(["step", *(curve.name for curve in curves)], rows)


def _over_seconds(curves: Sequence[Curve]) -> str:
    longest = max(curve.readings[-1].seconds for curve in curves)
    times = [longest * i / TIMES for i in range(TIMES + 1)]
    rows = ([f"{time:.0f}", *(_cell(curve.by(time)) for curve in curves)] for time in times)
    return _table(["seconds", *(curve.name for curve in curves)], rows)


def _cell(at: Reading | None, *, greedy: bool = False) -> str:
    if at is None:
        return ""
    return f"{at.sampled:.3f} ({at.greedy:.3f})" if greedy else f"{at.sampled:.3f} ({at.step})"


def _runs(curves: Sequence[Curve]) -> str:
    head = ["run", "steps", "seconds", "median of a step", "GB at most"]
    head += ["mean gap at most", "gap at most"]
    rows = (
        [
            curve.name,
            str(len(curve.steps)),
            f"{sum(curve.steps):.0f}",
            f"{median(curve.steps):.2f}",
            f"{curve.memory / 1e9:.1f}",
            *(f"{curve.checks[gap]:.3f}" if gap in curve.checks else "" for gap in GAPS),
        ]
        for curve in curves
    )
    return _table(head, rows)


def _measured(folder: Path) -> str:
    return f"```\n{measured_text(folder)}\n```"


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(named: Sequence[str], out: Path) -> None:
    """Print and write the tables."""
    folders = [each.partition("=") for each in named]
    curves = [Curve.read(name, Path(folder or name)) for name, _, folder in folders]
    text = report(curves)
    print(text)
    out.mkdir(parents=True, exist_ok=True)
    (out / "curves.md").write_text(text, encoding="utf-8")
    found = {
        curve.name: attrs.asdict(curve, filter=lambda field, _: field.name != "folder")
        for curve in curves
    }
    (out / "curves.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "runs/chain_sum")))
    given = parser.parse_args()
    main(given.runs, given.out)
