"""The demo's learning curve: read from metrics.jsonl, drawn as a PNG."""

import json
from pathlib import Path
from typing import Any

import attrs
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt


@attrs.frozen
class Curve:
    """Rewards by step: of the samples trained on, and on held-out problems.

    `sampled` is the held-out mean at temperature 1, `greedy` that of the likeliest tokens; both
    are read at `evaluated`, which begins with 0, before the first update.
    """

    steps: list[int]
    trained: list[float]
    evaluated: list[int]
    sampled: list[float]
    greedy: list[float]

    @classmethod
    def read(cls, path: Path) -> "Curve":
        """Read a metrics.jsonl: one JSON object a line, keyed by metric."""
        lines = path.read_text(encoding="utf-8").splitlines()
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        training = [row for row in rows if "reward" in row]
        readings = [row for row in rows if "eval/reward" in row]
        return cls(
            steps=[row["step"] for row in training],
            trained=[row["reward"] for row in training],
            evaluated=[row["step"] for row in readings],
            sampled=[row["eval/reward"] for row in readings],
            greedy=[row["eval/greedy"] for row in readings],
        )


def plot(curve: Curve, path: Path, *, title: str) -> None:
    """Draw the three curves of reward over steps."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(curve.steps, curve.trained, color="0.75", linewidth=1, label="samples trained on")
    axes.plot(curve.evaluated, curve.sampled, "o-", label="held-out, sampled at temperature 1")
    axes.plot(curve.evaluated, curve.greedy, "s--", label="held-out, greedy")
    axes.set(xlabel="step", ylabel="mean reward", ylim=(0, 1), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)
