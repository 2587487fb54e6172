"""What a run shows while it goes on: a live line on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from flowrl.runtime.executor import Step
from flowrl.stdout import tell

PLAIN_EVERY = 5.0
"""Least seconds between plain lines."""


@attrs.define
class Progress:
    """Turns steps into lines.

    Attributes:
        steps: of the run.
        show: is given each line, and whether it must stay on the screen.
    """

    steps: int
    show: Callable[[str, bool], None]
    started: float = attrs.field(factory=time.monotonic)

    def begin(self) -> None:
        """Start the clock of the steps."""
        self.started = time.monotonic()

    def step(self, number: int, done: Step) -> None:
        """Show a step that is done."""
        line = step_line(number, self.steps, done, time.monotonic() - self.started)
        self.show(line, number == self.steps)

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self.show(text, True)


def step_line(number: int, steps: int, done: Step, elapsed: float) -> str:
    """Return one line about a step: reward, loss, KL, speed, seconds a phase, time left.

    Args:
        number: of the step, from 1.
        steps: of the run.
        done: what the step gave.
        elapsed: seconds since the first step began.
    """
    metrics, seconds = done.metrics, done.elapsed
    parts = [f"step {number}/{steps}"]
    if "reward" in metrics:
        reward = metrics["reward"]
        parts.append("no reward" if math.isnan(reward) else f"reward {reward:.3f}")
    parts += [f"loss {value:.4f}" for value in _all(metrics, "/loss")[:1]]
    kls = _all(metrics, "/kl") or _all(metrics, "/kl_old")
    parts += [f"kl {value:.4f}" for value in kls[:1]]
    if "tokens/sampled" in metrics and seconds:
        parts.append(f"{metrics['tokens/sampled'] / seconds:,.0f} tokens/s")
    phases = [f"{name} {spent:.2f}" for name, spent in done.seconds.items() if spent >= 0.005]
    parts.append(f"{seconds:.2f} s" + (f" ({', '.join(phases)})" if phases else ""))
    left = round(elapsed / number * (steps - number))
    return " | ".join([*parts, f"ETA {left // 60}:{left % 60:02}"])


def _all(metrics: Mapping[str, float], ending: str) -> list[float]:
    return [value for name, value in metrics.items() if name.endswith(ending)]


@contextmanager
def progress(steps: int, console: str) -> Iterator[Progress]:
    """Show the progress of a run.

    Args:
        steps: of the run.
        console: `rich` for a live line, `plain` for lines, `auto` for the one that fits.
    """
    if console == "plain" or (console == "auto" and not sys.stdout.isatty()):
        yield Progress(steps, _plain())
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), refresh_per_second=4) as live:

        def show(text: str, stays: bool) -> None:
            live.console.print(Text(text)) if stays else live.update(Text(text))

        yield Progress(steps, show)


def _plain() -> Callable[[str, bool], None]:
    last = 0.0

    def show(text: str, stays: bool) -> None:
        nonlocal last
        if stays or time.monotonic() - last >= PLAIN_EVERY:
            tell(text)
            last = time.monotonic()

    return show
