"""SFT, a reward model, PPO on what it says: the classic chain, from nothing, on this machine.

    python chain.py [--folder FOLDER] [--seed N] [--quick]

Each stage is a script or a `flowrl run` that can be repeated by hand: it is printed before it
starts. The task and the untrained model are the demo's (../demo).
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(os.path.relpath(Path(__file__).parent))
BIN = Path(os.path.relpath(Path(sys.executable).parent))
QUIET = {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
QUICK = {
    "sft": ["optimizer.warmup_steps=0"],
    "samples": ["train.prompts_per_step=64"],
    "reward_model": ["optimizer.warmup_steps=0"],
    "ppo": [
        "optimizer.warmup_steps=0",
        "optimizer.policy.start_step=0",
        "program.minibatch=64",
        "train.prompts_per_step=64",
        "eval.prompts=64",
    ],
}
"""What is set, besides two steps, to see that each stage runs."""
Stage = tuple[str, list[str]]
"""What a command is for, and the command."""


def stages(folder: Path, seed: int, quick: bool) -> Iterator[Stage]:
    """Yield the stages in order."""
    demo = HERE.parent / "demo"

    def script(path: Path, *arguments: object) -> list[str]:
        return [str(BIN / "python"), str(path), *map(str, arguments)]

    def training(name: str) -> list[str]:
        short = ["train.steps=2", "log.tensorboard=false", *QUICK[name]] if quick else []
        sets = [f"train.seed={seed}", *short]
        given = [text for each in sets for text in ("--set", each)]
        return [str(BIN / "flowrl"), "run", str(folder / f"{name}.toml"), *given]

    yield "Draw problems", script(demo / "make_task.py", folder / "task", seed)
    yield "Make an untrained Llama", script(demo / "make_model.py", folder / "model", seed)
    yield "SFT: imitate a teacher who is right one time in three", training("sft")
    yield "Sample the SFT model", training("samples")
    yield "Prefer right answers to its wrong ones", script(HERE / "make_pairs.py", folder, seed)
    yield "Reward model: learn the preferences", training("reward_model")
    yield "PPO on what the reward model says", training("ppo")


def run(stage: Stage) -> None:
    """Print a command, run it, and stop if it fails."""
    purpose, command = stage
    print(f"\n== {purpose}\n$ {shlex.join(command)}", flush=True)
    start = time.monotonic()
    if code := subprocess.run(command, env={**os.environ, **QUIET}).returncode:
        sys.exit(f"the chain stopped: the command above exited with {code}")
    print(f"   took {time.monotonic() - start:.0f} s", flush=True)


def report(folder: Path) -> None:
    """Print how well the reward model tells pairs apart, and the true reward it led to."""
    pairs, trained = (
        [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("reward_model", "ppo")
    )
    right = [row["model/accuracy"] for row in pairs[-20:]]
    held_out = [row for row in trained if "eval/reward" in row]
    first, last = held_out[0], held_out[-1]
    print(f"\n   pairs that the reward model orders rightly: {sum(right) / len(right):.3f}")
    print("   true reward on held-out problems, before and after PPO:")
    print(f"   sampled at temperature 1: {first['eval/reward']:.3f} -> {last['eval/reward']:.3f}")
    print(f"   greedy:                   {first['eval/greedy']:.3f} -> {last['eval/greedy']:.3f}")


def main() -> None:
    """Run the chain in a fresh folder, then report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/chain"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two steps of each stage")
    given = parser.parse_args()
    start = time.monotonic()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    for file in HERE.glob("*.toml"):
        shutil.copy(file, given.folder)
    for stage in stages(given.folder, given.seed, given.quick):
        run(stage)
    report(given.folder)
    print(f"   in all {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
