"""Seconds of a GRPO step on one GPU, side by side: flowrl, a loop written by hand, TRL.

    python benchmarks/speed/run.py [--workloads w3 w1] [--systems flowrl handloop trl] [--steps N]

Each system runs in a process of its own, one after the other, on the same model of random weights,
the same prompts, and samples of one length: an update a step, no reference. `weights` is what it
takes until vLLM samples with the new ones; `other` is all of a step that no part has. The first
steps are left out: they compile. `handloop-logprobs` asks vLLM for old logprobs, as flowrl does,
`handloop-old` and `trl` recompute them; `trl-kind` is TRL in bfloat16 without checkpoints and
without these. `--shape tiny` shows on a CPU that all works.

$OUT (or the folder) gets speed.json, with every step, and what each process has printed;
`--profile` adds where flowrl's steps spend their time in Python.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import attrs
from work import HERE, Work, work_of

from flowrl.runtime.engines.vllm.process import ENVIRONMENT as VLLM

SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "flowrl": ("flowrl_row.py",),
    "handloop": ("handloop.py",),
    "handloop-logprobs": ("handloop.py", "--old", "engine"),
    "handloop-old": ("handloop.py", "--old", "trainer"),
    "trl": ("trl_grpo.py",),
    "trl-kind": ("trl_grpo.py", "--kind"),
}
"""Script and options of each system."""
PARTS = ("generate", "logprobs", "reward", "update", "weights")
COLUMNS = ("step", *PARTS, "other")
ENVIRONMENT = {
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    **VLLM,
}
"""What all processes have, unless the user has set it."""
ROOT = HERE.parents[1]


@attrs.frozen
class Bench:
    """Where things lie, and what is left out of medians.

    Attributes:
        folder: for models, data and runs.
        out: for results.
        warmup: steps that don't count.
    """

    folder: Path
    out: Path
    warmup: int

    def script(self, log: str, *command: str) -> int:
        """Run a script beside this one in a process of its own; return its exit code."""
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        file = self.out / f"{log}.log"
        with file.open("w") as out:
            done = subprocess.run(
                [sys.executable, str(HERE / command[0]), *command[1:]],
                env={**ENVIRONMENT, **os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        if done.returncode:
            last = file.read_text().splitlines()[-15:]
            print("\n".join([f"{log} failed, exit code {done.returncode}: {file}", *last]))
        return done.returncode

    def prepared(self, work: Work) -> str:
        """Return the file of a workload, whose model and prompts are made."""
        file = self.folder / f"{work.name}.json"
        work.save(file)
        if self.script(f"{work.name}-make", "make.py", str(file)):
            sys.exit(1)
        return str(file)

    def row(self, system: str, name: str, work: str) -> dict[str, Any]:
        """Run a system on a workload; return its row."""
        file = self.out / f"{name}-{system}.json"
        script, *options = SYSTEMS[system]
        row: dict[str, Any] = {"system": system, "workload": name}
        if self.script(file.stem, script, work, str(file), *options):
            return row | {"failed": f"see {file.stem}.log"}
        found = json.loads(file.read_text())
        return {**row, **found, "median": medians(found["steps"], self.warmup)}


def medians(steps: list[dict[str, float]], warmup: int) -> dict[str, float]:
    """Return the median seconds of each part and of what is left, over the steps that count."""
    counted = steps[warmup:] or steps
    whole = [
        {**step, "other": step["step"] - sum(step.get(p, 0.0) for p in PARTS)} for step in counted
    ]
    return {part: median(step.get(part, 0.0) for step in whole) for part in COLUMNS}


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table; `ratio` is to the loop written by hand."""
    heads = (*COLUMNS, "GiB", "MB sent", "ratio")
    yield f"{'':18}{'':9}" + "".join(f"{head:>10}" for head in heads)
    hand = {
        r["workload"]: r["median"]["step"]
        for r in rows
        if r["system"] == "handloop" and "median" in r
    }
    for row in rows:
        name = f"{row['system']:18}{row['workload']:9}"
        if "failed" in row:
            yield f"{name}  failed: {row['failed']}"
            continue
        seconds = "".join(f"{row['median'][part]:10.3f}" for part in COLUMNS)
        sizes = f"{row['peak_bytes'] / 2**30:10.1f}{row['weights_bytes'] / 1e6:10.1f}"
        against = hand.get(row["workload"])
        yield (
            name + seconds + sizes + (f"{row['median']['step'] / against:10.2f}" if against else "")
        )


def commit() -> str:
    """Return the commit that is measured; "" if the folder is none of git's."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return done.stdout.strip()


def main() -> None:
    """Run everything; print each row as soon as it is there, and the table in the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="+", default=["w3", "w1"])
    parser.add_argument(
        "--systems", nargs="+", default=["flowrl", "handloop", "trl"], choices=SYSTEMS
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--shape", choices=["full", "tiny"], default="full")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "speed")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    folder = given.folder.resolve()
    bench = Bench(folder, Path(os.environ.get("OUT", folder)).resolve(), given.warmup)
    for each in (folder, bench.out):
        each.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name in given.workloads:
        work = bench.prepared(work_of(name, folder, given.steps, tiny=given.shape == "tiny"))
        for system in given.systems:
            rows.append(bench.row(system, name, work))
            print("\n".join(table(rows[-1:])), flush=True)
            result = {"commit": commit(), "warmup": given.warmup, "rows": rows}
            (bench.out / "speed.json").write_text(json.dumps(result, indent=1))
        if given.profile:
            file = str(bench.out / f"{name}-profile.txt")
            bench.script(f"{name}-profile", "flowrl_profile.py", work, file, str(given.warmup))
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
