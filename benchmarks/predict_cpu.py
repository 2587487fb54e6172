"""How well one profile predicts a run on this machine's CPU at other batch sizes.

    python benchmarks/predict_cpu.py [--turns 15] [--base 32] [--others 16 64]

The demo's small model, with random weights, is trained by GRPO in this process: one run at each
number of prompts, all open at once, whose steps are taken in turns, so that the machine's other
load falls on all alike. The profile is fitted to the steps at the first number; medians at the
others are held against what plans predict by it.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from flowrl.config.planned import plan_run
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.runtime.executor import Step
from flowrl.train.fit import fitted
from flowrl.train.prepare import lower
from flowrl.train.profile import stepping

DEMO = Path(__file__).resolve().parents[1] / "examples" / "demo"
RUN = """
[program]
file = "grpo"
samples = 8
kl_coef = 0
[models.policy]
path = "model"
[engines.policy.generate]
max_tokens = 9
sequences_per_block = 256
[cluster]
machines = "1xCPU"
[data]
source = "task/train.jsonl"
[reward]
reward = "reasoning_gym:spell_backward"
[train]
steps = 4
[workload]
prompt_tokens = 57
response_tokens = 9
"""
QUIET = {"TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"}


def prepare(folder: Path) -> None:
    """Make the demo's data and model, and a run file beside them."""
    for script, target in (("make_task.py", "task"), ("make_model.py", "model")):
        command = [sys.executable, str(DEMO / script), str(folder / target), "0"]
        subprocess.run(command, check=True, env={**os.environ, **QUIET}, stdout=subprocess.DEVNULL)
    (folder / "run.toml").write_text(RUN)


def run_of(folder: Path, prompts: int, place: str = "plan", *sets: str) -> RunFile:
    """Return the run at a number of prompts, in a folder of its own."""
    own = (f"train.prompts_per_step={prompts}", f'train.folder="runs/{place}"')
    return load_run_file(folder / "run.toml", (*own, *sets))


def steps_of(folder: Path, sizes: Sequence[int], turns: int) -> dict[int, list[Step]]:
    """Return the steps at each number of prompts, taken in turns."""
    found: dict[int, list[Step]] = {size: [] for size in sizes}
    with ExitStack() as open_runs:
        steps = {}
        for size in sizes:
            run = run_of(folder, size, str(size))
            steps[size] = open_runs.enter_context(stepping(run, lower(run), str))
        for _ in range(turns):
            for size, step in steps.items():
                found[size].append(step())
            took = ", ".join(f"{size}: {done[-1].elapsed:.2f} s" for size, done in found.items())
            print(f"a step of {took}", flush=True)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--base", type=int, default=32)
    parser.add_argument("--others", nargs="+", type=int, default=[16, 64])
    args = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        steps = steps_of(folder, [args.base, *args.others], args.turns)
        run = run_of(folder, args.base)
        base = fitted(plan_run(run)[1], lower(run).graph, steps[args.base])
        base.profile.save(folder / "profile.json")
        sets = ('workload.profile="profile.json"', f"workload.response_tokens={base.response}")
        print(f"\n{'prompts':>7} {'predicted':>9} {'measured':>8} {'off':>6}")
        for size in (args.base, *args.others):
            plan = plan_run(run_of(folder, size, "plan", *sets))[1]
            took = median(step.elapsed for step in steps[size])
            off = plan.found.seconds / took - 1
            fit = "  the profile's own" * (size == args.base)
            print(f"{size:7} {plan.found.seconds:8.2f}s {took:7.2f}s {off:+6.1%}{fit}")


if __name__ == "__main__":
    main()
