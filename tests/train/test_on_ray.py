"""A Ray that can't be had is told with the line that asks for it."""

import subprocess
import sys

import pytest
from inline_snapshot import snapshot

from flowrl.errors import EngineError

RAY = '[cluster]\nexecutor = "ray"\n'


def test_an_address_at_which_no_ray_answers(folder):
    path = folder.write("grpo", added=f'{RAY}address = "127.0.0.1:1"\n')

    done = subprocess.run(  # a process that has a Ray stays with it
        [sys.executable, "-m", "flowrl", "run", path], capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr == snapshot("""\
error: no Ray answers at 127.0.0.1:1: [Errno 111] Connection refused
  run.toml:33
   33 | address = "127.0.0.1:1"
        ^^^^^^^
help: start one there with `ray start --head`, or leave `cluster.address` out
""")


def test_more_cpus_than_there_are(folder):
    pools = '[cluster.pools.all]\ncpus = 99999\nroles = ["policy", "reference", "data", "reward"]\n'

    with pytest.raises(EngineError) as refused:
        folder.run("grpo", added=RAY + pools)

    assert str(refused.value).partition("\n")[2] == snapshot("""\
  run.toml:33
   33 | [cluster.pools.all]
                 ^^^^^
  pool `all`: 1 x (99999 CPUs)
help: make the pools of [cluster] smaller, or put several roles in one\
""")
