"""Train one program by the clock, reading its held-out reward as it goes.

    python -m benchmarks.learning.train RUN.toml SECONDS MEASURE RESULT.json

The seconds are those of steps: loading and evaluation are not counted. The trained models are left
in the run's folder, as a run leaves them.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from flowrl.config.run_file import load_run_file
from flowrl.ir.program import InputKind
from flowrl.runtime.engine import Completion, Generator, Request, Sampling
from flowrl.runtime.executor import LocalExecutor, Step
from flowrl.train.executors import Opened, opened
from flowrl.train.prepare import lower

READINGS = 8
"""How often the reward is read, besides before training."""


@attrs.define(eq=False)
class Counted:
    """A generator that counts the samples asked of it."""

    generator: Generator
    samples: int = 0

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights."""
        self.generator.load(weights, version)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Sample."""
        self.samples += sum(request.n for request in requests)
        return self.generator.generate(requests, sampling)


@attrs.frozen
class Reading:
    """A measure after some training.

    Attributes:
        seconds: of steps so far.
        samples: sampled so far, or sequences read by a program that doesn't sample.
        value: of the measure.
    """

    seconds: float
    samples: int
    value: float


class Training:
    """A program that is trained until a time, then read, then trained on."""

    def __init__(self, ready: Opened, rows: int) -> None:
        executor = ready.executor
        assert isinstance(executor, LocalExecutor)
        self.ready, self.executor, self.rows = ready, executor, rows
        self.generators = {r: Counted(g) for r, g in executor.host.generators.items()}
        executor.host.generators = self.generators
        self.carry, self.seconds, self.steps = executor.first(), 0.0, 0

    def until(self, seconds: float) -> Iterator[Step]:
        """Yield the steps up to a time, of which the first is later."""
        while self.seconds < seconds:
            done = self.executor.step(self.carry, self.ready.cursors, self.steps)
            self.carry, self.steps = done.carry, self.steps + 1
            self.seconds += done.elapsed
            yield done

    def reading(self, measure: str, steps: Sequence[Step]) -> Reading:
        """Return a metric of the evaluation, or its mean over steps."""
        sampled = sum(generator.samples for generator in self.generators.values())
        if measure.startswith("eval/"):
            assert self.ready.evaluation is not None
            value = self.ready.evaluation.run()[measure]
        else:
            value = sum(step.metrics[measure] for step in steps) / len(steps)
        return Reading(self.seconds, sampled or self.steps * self.rows, value)


def train(run_file: Path, seconds: float, measure: str) -> list[Reading]:
    """Train for so many seconds of steps; return the readings, by time."""
    run = load_run_file(run_file)
    lowered = lower(run)
    (data,) = (spec.data for spec in lowered.traced.inputs if spec.kind is InputKind.DATA)
    rows = run.train.prompts_per_step * (2 if data == "Pairs" else 1)
    with opened(run, lowered, print) as ready:
        training = Training(ready, rows)
        readings = [training.reading(measure, ())] if measure.startswith("eval/") else []
        for number in range(1, READINGS + 1):
            steps = list(training.until(seconds * number / READINGS))
            if steps:
                readings.append(training.reading(measure, steps))
                print(readings[-1], flush=True)
        for role in training.executor.save(str(run.folder / "checkpoint")):
            ready.tokenizers[role].save_pretrained(run.folder / "checkpoint" / role)
    return readings


def main(run_file: str, seconds: str, measure: str, result: str) -> None:
    """Write the readings, with what they are of; the file is there whole or not at all."""
    readings = train(Path(run_file), float(seconds), measure)
    found = {
        "seconds": float(seconds),
        "run": Path(run_file).read_text(encoding="utf-8"),
        "readings": [attrs.asdict(reading) for reading in readings],
    }
    draft = Path(result).with_suffix(".draft")
    draft.write_text(json.dumps(found, indent=1), encoding="utf-8")
    draft.rename(result)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(f"usage: {Path(sys.argv[0]).stem} RUN.toml SECONDS MEASURE RESULT.json")
    main(*sys.argv[1:])
