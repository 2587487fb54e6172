"""A reward function with every fault, and the processes that call it."""

import contextlib
import time

import psutil

FAULTY = """
import os, re, sys, time

def score(prompts, completions):
    for completion in completions:
        if completion == "loop":
            while True: pass
        if completion == "backtrack":  # holds the interpreter's lock all the while
            re.match(r"(a+)+$", "a" * 60 + "b")
        if completion == "sleep":
            time.sleep(1000)
        if completion == "raise":
            raise KeyError("x7")
        if completion == "sys.exit":
            sys.exit(4)
        if completion == "GeneratorExit":
            raise GeneratorExit
        if completion == "os._exit":
            os._exit(3)
        if completion == "abort":
            os.kill(os.getpid(), 11)
        if completion == "short":
            return [1.0] * (len(completions) - 1)
    values = {"None": None, "nan": float("nan"), "text": "0.5", "object": sys, "True": True}
    return [values.get(completion, len(completion)) for completion in completions]
"""


PATIENCE = 60.0
"""Seconds to wait for what takes less than four where nothing else runs."""


def ended(*processes):
    """Return whether all processes end."""
    deadline = time.monotonic() + PATIENCE
    while any(map(runs, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def runs(process):
    """Return whether a process is there; a zombie has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def workers_of(process):
    """Return the children of a process that are workers."""
    return [child for child in process.children() if is_worker(child)]


def is_worker(process):
    """Return whether a child runs a worker's program; as it starts, it names none for a moment."""
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
        while time.monotonic() < deadline:
            if command := process.cmdline():
                return "flowrl.rewards.worker" in " ".join(command)
            time.sleep(0.01)
    return False
