"""What a run writes as it goes on: metrics to a JSONL file and TensorBoard, sampled texts."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TextIO

import attrs

from flowrl.config.tables.schema import LogTable
from flowrl.runtime.host import ScoreFunction, Scores
from flowrl.runtime.rows.rows import Row
from flowrl.train.folder import writing


class MetricLog:
    """Writes one record a step, as `[log]` says."""

    def __init__(self, folder: Path, table: LogTable) -> None:
        self.folder, self.closing = folder, ExitStack()
        self.file: TextIO | None = None
        self.board: Any = None
        with writing(folder):
            if table.jsonl:
                self.file = self.closing.enter_context((folder / "metrics.jsonl").open("w"))
            if table.tensorboard:
                from torch.utils.tensorboard import SummaryWriter

                self.board = SummaryWriter(str(folder / "tensorboard"))
                self.closing.callback(self.board.close)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics after `step` steps.

        In the file what is no finite number is null, and a metric called `step` stands as
        `metric/step`, beside the number of the step. TensorBoard has no point for NaN.

        Raises:
            RunFileError: they can't be written.
        """
        with writing(self.folder):
            if self.file:
                self.file.write(json.dumps(_record(step, metrics), allow_nan=False) + "\n")
                self.file.flush()
            for name, value in metrics.items() if self.board else ():
                if not math.isnan(value):
                    self.board.add_scalar(name, value, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with writing(self.folder):  # again what could not be written before
            self.closing.close()


def _record(step: int, metrics: Mapping[str, float]) -> dict[str, float | None]:
    record: dict[str, float | None] = {"step": step}
    for name, value in metrics.items():
        key = "metric/step" if name == "step" else name
        record[key] = float(f"{value:.6g}") if math.isfinite(value) else None
    return record


@attrs.define(eq=False)
class SampleLog:
    """Scores as `score` does, and writes the first completions of each step to a JSONL file.

    A record has `step`, `row` (file and row), `sample`, `prompt`, `completion` and `rewards`, by
    name; null where a reward function failed.
    """

    file: Path
    count: int
    score: ScoreFunction
    _step: int = -1
    _left: int = 0

    def __call__(
        self,
        functions: Sequence[str],
        rows: Sequence[Row],
        completions: Sequence[str],
        samples: Sequence[int],
        step: int,
        given: Mapping[str, list[float]],
    ) -> Scores:
        """Return the scores; see `flowrl.runtime.host.ScoreFunction`."""
        scores = self.score(functions, rows, completions, samples, step, given)
        if step != self._step:
            self._step, self._left = step, self.count
        taken = min(self._left, len(rows))
        self._left -= taken
        with writing(self.file), self.file.open("a") as file:
            for i in range(taken):
                rewards = dict(zip(functions, (of[i] for of in scores.values), strict=True))
                texts = {"prompt": rows[i].prompt, "completion": completions[i]}
                where = {"step": step + 1, "row": rows[i].where, "sample": samples[i]}
                file.write(json.dumps({**where, **texts, "rewards": rewards}) + "\n")
        return scores
