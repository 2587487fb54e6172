"""The learning benchmark's table and plot."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

from benchmarks.learning.settings import Settings

BEGIN, END = "<!-- learning -->", "<!-- end of learning -->"
HEAD = "| program | before | after | gain | margin | samples |\n|---|---|---|---|---|---|"
COLUMNS = 5


@attrs.frozen
class Outcome:
    """What one program came to."""

    settings: Settings
    result: Mapping[str, Any]

    @property
    def samples(self) -> list[int]:
        """The samples taken at each reading."""
        return [reading["samples"] for reading in self.result["readings"]]

    @property
    def values(self) -> list[float]:
        """The measure at each reading."""
        return [reading["value"] for reading in self.result["readings"]]

    @property
    def start(self) -> float:
        """The measure before training."""
        given = self.settings.start
        return self.values[0] if given is None else given

    @property
    def gain(self) -> float:
        """How much more than its start it came to."""
        return self.values[-1] - self.start

    @property
    def learned(self) -> bool:
        """Whether it beat its start by the margin."""
        return self.gain >= self.settings.margin

    def row(self) -> str:
        """Return its row of the table."""
        cells = [self.settings.program, f"{self.start:.2f}", f"{self.values[-1]:.2f}"]
        missed = "" if self.learned else ", missed"
        cells += [f"{self.gain:+.2f}", f"{self.settings.margin:.2f}{missed}"]
        return f"| {' | '.join([*cells, f'{self.samples[-1]:,}'])} |"


def table(settings: list[Settings], outcomes: Mapping[str, Outcome]) -> str:
    """Return a row for each program: what it came to, why it isn't run, or that it wasn't yet."""
    rows = []
    for each in settings:
        if each.program in outcomes:
            rows.append(outcomes[each.program].row())
        else:
            rows.append(f"| {each.program} | {each.why_not or 'not run'} | | | | |")
    return "\n".join([HEAD, *rows])


def plot(outcomes: list[Outcome], path: Path) -> None:
    """Draw each program's measure against samples, in a panel of its own."""
    rows = -(-len(outcomes) // COLUMNS)
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "", "font.size": 7}):
        figure, axes = plt.subplots(
            rows, COLUMNS, figsize=(9, 1.5 * rows), layout="constrained", squeeze=False, sharey=True
        )
        for panel, outcome in zip(axes.flat, outcomes, strict=False):
            thousands = [count / 1000 for count in outcome.samples]
            panel.axhline(outcome.start, color="0.8", linewidth=0.8)
            panel.plot(thousands, outcome.values, ".-", linewidth=1, markersize=3)
            panel.set(title=outcome.settings.program, ylim=(0, 1), xlim=(0, None))
        for panel in axes.flat[len(outcomes) :]:
            panel.set_axis_off()
        figure.supxlabel("thousand samples")
        figure.supylabel("held-out reward; pairs ordered rightly for reward_model")
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
