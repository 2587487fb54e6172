import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.rewards.processes import FAULTY, PATIENCE, ended, workers_of

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("session", ["", ", start_new_session=True"])
def test_closing_leaves_no_process_not_even_one_that_a_function_started(session, write, pool, rows):
    write(
        "import subprocess\n"
        f"def f(completions): return [subprocess.Popen(['sleep', '1000']{session}).pid]"
    )
    opened = pool("rewards.py:f", workers=2)
    started = psutil.Process(int(opened.score("reward", rows(1), ["a"]).values[0]))

    opened.close()

    assert workers_of(psutil.Process()) == []
    assert ended(started)


PARENT = """
import sys
from pathlib import Path
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.spec import RewardSpec
from flowrl.runtime.rows.rows import Row

folder = Path(sys.argv[1])
spec = RewardSpec("rewards.py:score", time_limit=float(sys.argv[2]))
with RewardPool({"reward": spec}, workers=2, folder=folder) as pool:
    print("ready", flush=True)
    pool.score("reward", [Row(0, "data.jsonl:1", "")], [sys.argv[3]])
"""


@pytest.fixture
def parent(write):
    """Run a program whose reward function hangs; return it and its workers."""
    opened = []

    def start(time_limit, fault):
        folder = write(FAULTY)
        write(PARENT, "train.py")
        command = [sys.executable, folder / "train.py", folder, str(time_limit), fault]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
        )
        opened.append(process)
        assert process.stdout.readline() == b"ready\n"
        workers = workers_of(psutil.Process(process.pid))
        assert len(workers) == 2
        while not any(worker.cpu_times().user > 0.3 for worker in workers):  # until it hangs
            time.sleep(0.05)
        return process, workers

    yield start
    for process in opened:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(("time_limit", "fault"), [(1000, "loop"), (5.0, "backtrack")])
def test_the_workers_end_when_the_parent_is_killed(time_limit, fault, parent):
    process, workers = parent(time_limit, fault)

    process.kill()

    assert ended(*workers)


def test_the_workers_end_when_the_parent_is_interrupted(parent):
    process, workers = parent(1000, "loop")

    process.send_signal(signal.SIGINT)

    assert process.wait(PATIENCE) != 0
    assert ended(*workers)
