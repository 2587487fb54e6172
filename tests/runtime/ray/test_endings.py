"""Runs on a Ray of their own end well, however they end."""

import json
import os
import re
import signal
from contextlib import suppress

import psutil
import pytest
import ray
from inline_snapshot import snapshot
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from tests.rewards.processes import ended
from tests.runtime.ray.conftest import HELD_OUT, POOLS, RANKS
from tests.started import LONG, runs, wait_for_records

OURS = re.compile(r"ray::Worker|flowrl\.rewards\.worker")
"""Command lines of the processes that a run has besides Ray's own."""


@pytest.fixture
def started(heldout):
    """Start `flowrl run` with a Ray of its own."""
    with runs() as start:

        def with_pools(*sets, added=POOLS):
            path = heldout.write("grpo", HELD_OUT + added)
            return start(path, *sets, start_new_session=True)

        yield with_pools


def after_first_step(folder, child):
    """Wait for a record; return all processes of the run."""
    wait_for_records(folder, child, 2)
    return psutil.Process(child.pid).children(recursive=True)


def named(processes):
    """Return what processes run, by process; some of Ray's own come and go."""
    found = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found[process] = " ".join(process.cmdline())
    return found


def worker_of(pool, child, index=0):
    """Return the process of a worker of a pool, as progress shows it."""
    for line in child.stdout:
        if line.startswith(f"pool {pool}:"):
            return psutil.Process(int(re.findall(r"pid (\d+)", line)[index]))
    raise AssertionError(child.stderr.read())


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["to the run", "to its group"])
def test_ctrl_c_ends_a_run_with_130_and_all_its_processes(heldout, started, group):
    child = started(*LONG)
    processes = after_first_step(heldout, child)

    (os.killpg if group else os.kill)(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=600)

    assert child.returncode == 130, err
    assert out.splitlines()[-1] == f"interrupted; what was written is in {heldout.path / 'out'}"
    assert "Traceback" not in err
    assert ended(*processes)


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["train", "data"])
def test_a_worker_that_dies_ends_the_run_with_its_pool_named(heldout, started, pool):
    child = started(*LONG)
    victim = worker_of(pool, child)
    processes = after_first_step(heldout, child)

    victim.kill()
    _, err = child.communicate(timeout=600)

    assert child.returncode == 1
    assert re.match(rf"error: worker 0 of pool `{pool}` \(pid {victim.pid} on \S+\) died", err), err
    assert "Traceback" not in err
    assert ended(*processes)


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_run_with_it_named_not_those_that_wait(heldout, started):
    child = started(*LONG, added=RANKS)
    victim = worker_of("train", child, 1)
    processes = after_first_step(heldout, child)

    victim.kill()
    _, err = child.communicate(timeout=600)

    assert child.returncode == 1
    assert re.match(rf"error: worker 1 of pool `train` \(pid {victim.pid} on \S+\) died", err), err
    assert "Traceback" not in err
    assert ended(*processes)


@pytest.mark.slow
def test_a_rank_that_does_not_come_ends_the_run_in_its_time(heldout, started):
    child = started(*LONG, "cluster.rank_timeout=20", added=RANKS)
    victim = worker_of("train", child, 1)
    processes = after_first_step(heldout, child)

    victim.suspend()
    _, err = child.communicate(timeout=600)

    assert child.returncode == 1
    assert re.search(
        r"^error: \w+: worker 0 of pool `(\w+)` waited at .* for the others, .* within 20 s.*\n  grpo.py:\d+\n(.*\n)+"
        r"  on worker 0 of pool `\1`",  # whichever it was that waited
        err,
    ), err
    assert "Traceback" not in err
    assert ended(*processes)


@pytest.mark.slow
def test_a_run_that_is_killed_takes_its_workers_along(heldout, started):
    child = started(*LONG)
    processes = after_first_step(heldout, child)
    ours = [process for process, command in named(processes).items() if OURS.search(command)]

    child.kill()
    child.communicate(timeout=600)

    assert len(ours) == 4 + 2
    assert ended(*ours)
    for agent in processes:  # two of Ray's outlive a driver that had no time to end them
        with suppress(psutil.NoSuchProcess):
            agent.kill()


@pytest.mark.slow
def test_pools_that_do_not_fit_end_the_run(heldout, started):
    child = started("cluster.pools.rollout.gpus=2", "cluster.pools.rollout.cpus=64")
    _, err = child.communicate(timeout=600)

    assert child.returncode == 1
    assert re.sub(
        r"there are \d+$", "there are N", err.splitlines()[0].partition("; ")[0]
    ) == snapshot("error: 2 GPUs are wanted, there are N")
    assert "pool `rollout`: 2 x (64 CPUs, 1 GPUs)" in err


@pytest.mark.slow
def test_a_ray_of_another_version_is_an_error(heldout, started, crew):
    key = {"key": b"CLUSTER_METADATA", "namespace": b"cluster"}
    metadata = json.loads(_internal_kv_get(**key))
    _internal_kv_put(
        value=json.dumps(metadata | {"ray_version": "2.9.0"}).encode(), overwrite=True, **key
    )
    address = ray.get_runtime_context().gcs_address

    child = started(f"cluster.address={address}")
    _, err = child.communicate(timeout=600)

    _internal_kv_put(value=json.dumps(metadata).encode(), overwrite=True, **key)
    assert child.returncode == 1
    assert "2.9.0" in err
    assert "Traceback" not in err
