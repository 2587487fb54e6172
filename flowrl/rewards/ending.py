"""Ending a process with all that it has started."""

import contextlib
import os
import signal

import psutil


def end_group(leader: int) -> None:
    """Kill the processes of a group and those that descend from its leader, itself too.

    Args:
        leader: the process that leads the group; it may be a zombie.
    """
    descendants: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        descendants = psutil.Process(leader).children(recursive=True)
    for process in descendants:  # those in a group of their own would survive the group's end
        with contextlib.suppress(psutil.Error):
            process.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
        os.killpg(leader, signal.SIGKILL)
