"""A worker process as its parent holds it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from flowrl.rewards.call import Fault
from flowrl.rewards.chunks import Chunk
from flowrl.rewards.ending import end_group
from flowrl.rewards.worker import Started

PROGRAM = "from flowrl.rewards.worker import main; main()"

START_LIMIT = 60.0
"""Seconds for starting a worker and importing the reward functions."""

INSIDE = "FLOWRL_REWARD_WORKER"
"""Set in a worker's environment."""


class RewardProcess:
    """A process that imports the functions, then makes one call at a time.

    It leads a process group of its own. That is killed with it, and all that descends from it:
    what the functions have started ends, in sessions of their own too. Its standard output is
    this process's standard error. It uses one thread for matrix products unless OMP_NUM_THREADS
    says otherwise.
    """

    def __init__(self, start: bytes) -> None:
        self.connection: Connection[Any, Any]
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-P", "-c", PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={"OMP_NUM_THREADS": "1"}
                | os.environ
                | {"PYTHONPATH": _search_path(), INSIDE: "1"},
            )
        self.started: Started | None = None
        """The functions' columns, once they are imported."""
        self.chunk: Chunk | None = None
        """What is being called."""
        self.ended = False
        self._send(start, START_LIMIT)

    @property
    def idle(self) -> bool:
        """Whether it waits for a call."""
        return self.started is not None and self.chunk is None

    @property
    def lost(self) -> bool:
        """Whether no call can begin: it died while idle, or an error left it in a call."""
        return not self.ended and (self.chunk is not None or (self.idle and self.connection.poll()))

    def begin(self, chunk: Chunk, message: bytes, time_limit: float) -> None:
        """Send a call."""
        self.chunk = chunk
        self._send(message, time_limit)

    def take(self) -> Any:
        """Return the reply that has come; if there is none, kill the process and say why."""
        try:
            if self.connection.poll():
                return self.connection.recv()
            self.kill()
            return Fault("timeout", f"did not return within {self._time_limit:g} s")
        except (EOFError, OSError):
            return Fault("exception", f"ended its process ({self.kill()})")

    def kill(self) -> str:
        """End the process and all that it has started; return how it ended."""
        self.ended = True
        self.connection.close()
        end_group(self.process.pid)  # before `wait` gives its id away
        code = self.process.wait()
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name

    def _send(self, message: bytes, time_limit: float) -> None:
        self._time_limit = time_limit
        self.deadline = time.monotonic() + time_limit
        with contextlib.suppress(OSError):  # it has died meanwhile: `take` will say so
            self.connection.send_bytes(message)


def first_ready(workers: Sequence[RewardProcess]) -> list[RewardProcess]:
    """Wait for busy workers; return those that replied, ended or are past their deadline."""
    soonest = min(worker.deadline for worker in workers)
    ready = wait([w.connection for w in workers], max(0.0, soonest - time.monotonic()))
    now = time.monotonic()
    return [w for w in workers if w.connection in ready or w.deadline <= now]


def _search_path() -> str:
    return os.pathsep.join(path or os.getcwd() for path in sys.path)
