"""`flowrl run` in processes of its own."""

import subprocess
import sys
import time
from contextlib import contextmanager

MAIN = "import sys; from flowrl.cli import main; sys.exit(main())"
LONG = ("train.steps=100000", "reward.workers=2", "log.every_steps=1")
"""Of a run that goes on until it is ended."""


@contextmanager
def runs():
    """Yield a function that starts a run; all of them are ended after the test."""
    children = []

    def start(path, *sets, **given):
        arguments = [part for text in sets for part in ("--set", text)]
        child = subprocess.Popen(
            [sys.executable, "-c", MAIN, "run", path, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **given,
        )
        children.append(child)
        return child

    try:
        yield start
    finally:
        for child in children:
            child.kill()
            child.communicate()


def wait_for_records(folder, child, count):
    """Wait until a run has written so many records of its metrics."""
    file = folder.path / "out" / "metrics.jsonl"
    while child.poll() is None and not (file.exists() and file.read_text().count("\n") >= count):
        time.sleep(0.05)
    assert child.poll() is None, child.communicate()
