"""Runs that are ended from outside leave no process and no broken file."""

import os
import signal
from functools import partial

import psutil
import pytest

from tests.rewards.processes import ended
from tests.started import LONG, runs, wait_for_records

pytestmark = pytest.mark.processes


@pytest.fixture
def started(folder):
    """Start `flowrl run` in a process of its own."""
    path = folder.write("grpo")
    with runs() as start:
        yield partial(start, path)


def after_first_step(folder, child):
    """Wait for a record; return all processes of the run."""
    wait_for_records(folder, child, 1)
    processes = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    assert len(processes) == 3
    return processes


def test_ctrl_c_ends_a_run_with_130_and_all_its_processes(folder, started):
    child = started(*LONG)
    processes = after_first_step(folder, child)

    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=300)

    assert child.returncode == 130
    assert out.splitlines()[-1] == f"interrupted; what was written is in {folder.path / 'out'}"
    assert "Traceback" not in err
    assert ended(*processes)
    records = folder.records()
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_takes_its_workers_along(folder, started, number):
    child = started(*LONG)
    processes = after_first_step(folder, child)

    os.kill(child.pid, number)
    child.communicate(timeout=300)

    assert child.returncode == -number
    assert ended(*processes)


def test_an_error_is_one_message_and_code_1(folder, started):
    (folder.path / "reward.py").write_text("def vowels(completions):\n    return 1 / 0\n")

    child = started("reward.workers=2")
    _, err = child.communicate(timeout=300)

    assert child.returncode == 1
    assert err.startswith("error: the reward function `reward.py:vowels` raised ZeroDivisionError")
    assert "Traceback" not in err
