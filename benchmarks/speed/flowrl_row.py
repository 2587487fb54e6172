"""flowrl's row: `flowrl run` on the workload's run file, and what that run has logged.

python flowrl_row.py WORK.json ROW.json
"""

import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from clock import write_row
from work import Work

from flowrl.cli import main as command
from flowrl.config.run_file import load_run_file
from flowrl.train.op_log import OPS
from flowrl.train.prepare import lower

PARTS = {
    "": "step",
    "generate": "generate",
    "logprobs": "logprobs",
    "score": "reward",
    "update": "update",
}
"""Parts of a step by kind of op."""


def main(work: Work, row_file: str) -> int:
    """Run, and write the row; return the exit code of the run."""
    folder = Path(work.folder)
    shutil.rmtree(folder, ignore_errors=True)
    code = command(["run", work.run_file, *(f"--set={text}" for text in work.sets)])
    if code == 0:
        ops = records(folder / OPS)
        metrics = records(folder / "metrics.jsonl")
        peak = max(record["memory"] for record in ops if not record["op"])
        write_row(row_file, steps(ops, metrics), peak_bytes=peak, weights_bytes=weights_bytes(work))
    return code


def records(file: Path) -> list[dict[str, Any]]:
    """Return the records of a log."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def steps(ops: list[dict[str, Any]], metrics: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Return seconds by part of each step.

    What it takes to let vLLM have new weights is part of the op that samples; here it is its own.
    """
    found: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for record in ops:
        if part := PARTS.get(record["kind"] if record["op"] else ""):
            found[record["step"]][part] += record["seconds"]
    for record in metrics:
        weights = record["seconds/weights"]
        found[record["step"]]["weights"] = weights
        found[record["step"]]["generate"] -= weights
    return [dict(parts) for _, parts in sorted(found.items())]


def weights_bytes(work: Work) -> int:
    """Return the bytes that a step copies for vLLM to have new weights."""
    run = load_run_file(work.run_file, work.sets)
    if lower(run).models["policy"].shares:
        return 0
    return sum(file.stat().st_size for file in Path(work.model).glob("*.safetensors"))


if __name__ == "__main__":
    sys.exit(main(Work.load(sys.argv[1]), sys.argv[2]))
