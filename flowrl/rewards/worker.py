"""The worker process: imports the reward functions, then calls them as asked.

`main` runs with one argument, the descriptor of the socket to its parent (process.py). A thread
receives, so that the functions run in the main thread (where `signal.alarm` works) and the end
of the parent is seen at any time. The reply to the first message, `Start`, is `Started` or a
`FlowrlError`; the reply to each `Call` is a `Reply`.
"""

import faulthandler
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs

from flowrl.errors import FlowrlError, RewardError
from flowrl.rewards.call import Fault, Reply, call, described
from flowrl.rewards.ending import end_group
from flowrl.rewards.resolve import Columns, columns, naming, resolve

GRACE = 3.0
"""Seconds past its time limit after which a call ends itself: by then the parent should have."""

Key = tuple[str, str]
"""A function: the reward's name, and the value that picks it there."""


@attrs.frozen
class Start:
    """The functions to import: their names and options."""

    folder: Path
    functions: Mapping[Key, tuple[str, Mapping[str, Any]]]


Started = dict[Key, Columns]
"""The columns of each function."""


@attrs.frozen
class Call:
    """Score `count` completions."""

    function: Key
    arguments: Mapping[str, Any]
    count: int
    time_limit: float


def main() -> None:
    """Serve the parent until it closes the connection or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    parent: Connection[Any, Any] = Connection(int(sys.argv[1]))
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(parent, messages), daemon=True).start()
    functions: dict[Key, Callable[..., Any]] = {}
    with suppress(ConnectionError):  # the parent has gone: `_receive` ends us
        parent.send(_start(pickle.loads(messages.get()), functions))
        while True:
            parent.send(_answer(messages.get(), functions))


def _receive(parent: "Connection[Any, Any]", messages: "queue.SimpleQueue[bytes]") -> None:
    started_by = os.getppid()
    try:
        while True:
            if parent.poll(1.0):
                messages.put(parent.recv_bytes())
            elif os.getppid() != started_by:  # its end may live on in a fork of it
                break
    except (EOFError, OSError):
        pass  # the parent has gone
    finally:
        end_group(os.getpgrp())  # and whatever the functions have started


def _start(start: Start, functions: dict[Key, Callable[..., Any]]) -> Started | FlowrlError:
    started: Started = {}
    for key, (name, options) in start.functions.items():
        try:
            with naming(key[0]):
                functions[key], started[key] = _loaded(name, options, start.folder)
        except FlowrlError as error:
            return error
    return started


def _loaded(
    name: str, options: Mapping[str, Any], folder: Path
) -> tuple[Callable[..., Any], Columns]:
    try:
        function = resolve(name, options, folder)
        return function, columns(function)
    except FlowrlError:
        raise
    except Exception as error:
        raise RewardError(f"loading `{name}` raised {described(error)}") from error


def _answer(message: bytes, functions: Mapping[Key, Callable[..., Any]]) -> Reply:
    try:
        asked: Call = pickle.loads(message)
    except Exception as error:
        return Fault("exception", f"was not called: its columns raised {described(error)}")
    # The parent kills a call that is too long. If it was killed itself while the function holds
    # the interpreter's lock (a regular expression that backtracks), no thread of ours runs: this
    # timer needs no lock.
    faulthandler.dump_traceback_later(asked.time_limit + GRACE, exit=True, file=2)
    try:
        return call(functions[asked.function], asked.arguments, asked.count)
    finally:
        faulthandler.cancel_dump_traceback_later()
