"""How each program learns the demo's task, from one SFT checkpoint, in two minutes on one core.

    python -m benchmarks.learning [PROGRAM ...] [--seconds 120] [--jobs 1] [--folder F] [--write]

One process a program; `learning/<program>.toml` has its run file and the margin by which it shall
beat its start. A result that stands in the folder, of the same run file and seconds, is kept; so
the command may be stopped and given again. `--write` puts table and plot into docs/algorithms.md.
It exits with 1 if a program fails or misses its margin.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.learning_report import Outcome, plot, table, written
from benchmarks.learning_settings import FOLDER, Settings
from flowrl.config.programs import builtin_programs

ROOT = Path(__file__).parents[1]
CHAIN, DEMO = ROOT / "examples" / "chain", ROOT / "examples" / "demo"
PAGE, PICTURE = ROOT / "docs" / "algorithms.md", ROOT / "docs" / "learning.svg"
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}


def prepare(folder: Path) -> None:
    """Make what all programs start from: task, SFT checkpoint, pairs; what is there is kept."""
    python, flowrl = sys.executable, str(Path(sys.executable).parent / "flowrl")
    start = folder / "start"
    start.mkdir(parents=True, exist_ok=True)
    shutil.copy(FOLDER / "letters.py", folder)
    for name in ("sft.toml", "samples.toml"):
        shutil.copy(CHAIN / name, start)
    commands = {
        "task/demonstrations.jsonl": [python, str(DEMO / "make_task.py"), str(start / "task"), "0"],
        "model/tokenizer.json": [python, str(DEMO / "make_model.py"), str(start / "model"), "0"],
        "sft/checkpoint": [flowrl, "run", str(start / "sft.toml")],
        "samples/checkpoint": [flowrl, "run", str(start / "samples.toml")],
        "pairs.jsonl": [python, str(CHAIN / "make_pairs.py"), str(start), "0"],
    }
    for made, command in commands.items():
        if not (start / made).exists():
            half = start / Path(made).parts[0]  # of a run that was stopped
            shutil.rmtree(half, ignore_errors=True)
            subprocess.run(command, env={**os.environ, **QUIET}, check=True)


def result(settings: Settings, folder: Path, seconds: float) -> dict[str, Any] | None:
    """Return the result that stands in the folder, if it is of these settings and seconds."""
    path = folder / f"{settings.program}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    same = found["seconds"] == seconds and found["run"] == settings.as_text()
    return found if same else None


def train(settings: Settings, folder: Path, seconds: float) -> None:
    """Train a program in a process of its own; what it prints goes to <program>.log."""
    name = settings.program
    print(f"{name}: training", flush=True)
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / f"{name}.toml").write_text(settings.as_text(), encoding="utf-8")
    files = [str(folder / f"{name}.toml"), str(seconds), settings.measure]
    command = [
        sys.executable,
        "-m",
        "benchmarks.learning_run",
        *files,
        str(folder / f"{name}.json"),
    ]
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **QUIET}, stdout=log, stderr=subprocess.STDOUT
        )
    if done.returncode:
        print(f"{name}: failed, see {log.name}", flush=True)


def rounds(settings: list[Settings]) -> Iterator[list[Settings]]:
    """Yield those that need no other, then those that do."""
    yield [each for each in settings if not each.after]
    yield [each for each in settings if each.after]


def run(settings: list[Settings], folder: Path, seconds: float, jobs: int) -> dict[str, Any]:
    """Train what has no result yet; return the results, by program."""
    chosen = [each for each in settings if not each.why_not]
    with ThreadPoolExecutor(jobs) as pool:
        for ready in rounds(chosen):
            missing = [each for each in ready if result(each, folder, seconds) is None]
            list(pool.map(lambda each: train(each, folder, seconds), missing))
    found = {each.program: result(each, folder, seconds) for each in chosen}
    return {name: each for name, each in found.items() if each is not None}


def main() -> None:
    """Prepare, train, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", help="all if none is given")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, a core each")
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"))
    parser.add_argument("--write", action="store_true", help="renew docs/algorithms.md")
    given = parser.parse_args()
    folder = given.folder.resolve()
    settings = [Settings.read(name) for name in given.programs or builtin_programs()]
    prepare(folder)
    results = run(settings, folder, given.seconds, given.jobs)
    text = table(settings, results)
    print(f"\n{text}")
    outcomes = [Outcome(s, results[s.program]) for s in settings if s.program in results]
    if given.write:
        shown = f"{text}\n\n![Reward against samples]({PICTURE.name})"
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), shown), encoding="utf-8")
        plot(outcomes, PICTURE)
    failed = any(s.program not in results for s in settings if not s.why_not)
    sys.exit(int(failed or not all(outcome.learned for outcome in outcomes)))


if __name__ == "__main__":
    main()
