"""How each program learns the demo's task, from one SFT checkpoint, in two minutes on one core.

    python -m benchmarks.learning [PROGRAM ...] [--seconds 120] [--jobs 1] [--folder F] [--write]

One process a program; `<program>.toml` has its run file and the margin by which it shall
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

from benchmarks.learning.report import BEGIN, END, Outcome, plot, table
from benchmarks.learning.settings import FOLDER, Settings
from flowrl.config.programs import builtin_programs
from flowrl.report.pages import with_part

ROOT = Path(__file__).parents[2]
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
    run_file, made = folder / f"{name}.toml", folder / f"{name}.json"
    run_file.write_text(settings.as_text(), encoding="utf-8")
    arguments = [str(run_file), str(seconds), settings.measure, str(made)]
    command = [sys.executable, "-m", "benchmarks.learning.train", *arguments]
    with (folder / f"{name}.log").open("w") as log:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **QUIET}, stdout=log, stderr=subprocess.STDOUT
        )
    if done.returncode:
        print(f"{name}: failed, see {log.name}", flush=True)


def rounds(settings: list[Settings]) -> Iterator[list[Settings]]:
    """Yield the programs that need no other's result, then those that do."""
    yield [each for each in settings if not each.after]
    yield [each for each in settings if each.after]


def run(settings: list[Settings], folder: Path, seconds: float, jobs: int) -> None:
    """Train what has no result yet."""
    with ThreadPoolExecutor(jobs) as pool:
        for ready in rounds([each for each in settings if not each.why_not]):
            missing = [each for each in ready if result(each, folder, seconds) is None]
            list(pool.map(lambda each: train(each, folder, seconds), missing))


def results(settings: list[Settings], folder: Path, seconds: float) -> dict[str, Outcome]:
    """Return what there is of each program, by its name."""
    found = {each.program: (each, result(each, folder, seconds)) for each in settings}
    return {name: Outcome(each, of) for name, (each, of) in found.items() if of is not None}


def main() -> None:
    """Prepare, train, report."""
    name = "python -m benchmarks.learning"
    parser = argparse.ArgumentParser(name, description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", help="all if none is given")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, a core each")
    parser.add_argument("--folder", type=Path, default=Path("runs/learning"))
    parser.add_argument("--write", action="store_true", help="renew docs/algorithms.md")
    given = parser.parse_args()
    if unknown := set(given.programs) - set(builtin_programs()):
        parser.error(f"there is no program {', '.join(sorted(unknown))}")
    folder = given.folder.resolve()
    settings = [Settings.read(name) for name in builtin_programs()]
    chosen = [s for s in settings if not s.why_not and s.program in (given.programs or [s.program])]
    prepare(folder)
    run(chosen, folder, given.seconds, given.jobs)
    outcomes = results(settings, folder, given.seconds)
    text = table(settings, outcomes)
    print(f"\n{text}")
    if given.write:
        shown = f"{text}\n\n![Reward against samples]({PICTURE.name})"
        page = with_part(PAGE.read_text(encoding="utf-8"), BEGIN, END, shown)
        PAGE.write_text(page, encoding="utf-8")
        plot(list(outcomes.values()), PICTURE)
    learned = [name for name, outcome in outcomes.items() if outcome.learned]
    sys.exit(int(not {each.program for each in chosen} <= set(learned)))


if __name__ == "__main__":
    main()
