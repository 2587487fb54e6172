"""One Ray for the session, whose workers pass from test to test."""

import os
from contextlib import contextmanager

import pytest
import ray

from flowrl.runtime.pools import channels
from flowrl.runtime.pools.channels import RayLine
from flowrl.runtime.pools.held import IDS
from flowrl.runtime.pools.pools import PoolSize, RaySpec, started
from flowrl.runtime.ranks.ranks import Ranks
from tests.runtime.ray import inside
from tests.runtime.ray.faults import mended
from tests.runtime.ray.ranked import called
from tests.train.conftest import folder, make_model, model, serve  # noqa: F401

os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets all else on the machine go first

WORKERS = 5
POOLS = """
[cluster]
executor = "ray"
[cluster.pools.train]
roles = ["policy.train"]
cpus = 0.25
[cluster.pools.rollout]
roles = ["policy.generate"]
cpus = 0.25
workers = 2
"""
RANKS = """
[engines.policy.train]
shard = "fsdp2"
tokens_per_microbatch = 40
[cluster]
executor = "ray"
[cluster.pools.train]
cpus = 0.25
workers = 2
[cluster.pools.rollout]
roles = ["policy.generate"]
cpus = 0.25
"""
REPLICAS = """
[engines.policy.train]
shard = "fsdp2"
tokens_per_microbatch = 40
checkpointing = true
offload_activations = true
offload = "all"
[cluster]
executor = "ray"
[cluster.pools.train]
cpus = 0.25
workers = 4
roles = ["policy.train"]
layouts = { "policy.train" = "dp2 x fsdp2" }
[cluster.pools.rest]
roles = ["policy.generate", "data", "reward"]
cpus = 0.25
"""
TURNS = """
[cluster]
executor = "ray"
[cluster.pools.main]
roles = ["policy", "reference"]
cpus = 0.25
residencies = { "policy.generate" = "drop", "policy.train" = "offload", reference = "offload" }
"""
HELD_OUT = """
[eval]
every_steps = 2
[eval.data]
source = "heldout.jsonl"
"""


def known(record):
    """Return what is the same wherever models are: no seconds, nor what is one within a process."""
    return {
        name: x
        for name, x in record.items()
        if not name.startswith("seconds") and not name.endswith("/weights_shared")
    }


@pytest.fixture(scope="session")
def crew():
    """Start Ray and workers of no pool in particular."""
    ray.init(
        "local",
        num_cpus=4,
        num_gpus=8,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    with started(RaySpec((PoolSize("any", WORKERS, cpus=0.25),))) as pools:
        yield pools["any"]
    ray.shutdown()


@pytest.fixture
def pools(crew):
    """Return a function that makes pools of the session's workers, who forget what they had."""

    def pools(observe=None, **sizes):
        free = iter(line.actor for line in crew)
        made = {
            name: [
                RayLine(name, i, "pid 1 on here", observe=observe, actor=next(free))
                for i in range(n)
            ]
            for name, n in sizes.items()
        }
        taken = [line.actor for lines in made.values() for line in lines]
        ray.get([actor.__ray_call__.remote(inside.forget) for actor in taken])
        return made

    return pools


@pytest.fixture
def on(pools):
    """Return a function that has so many ranks call a function; it returns what each returns."""

    def on(count, function, *args):
        lines = pools(train=count)["train"]
        address = ray.get(lines[0].call("open_store"))
        ray.get([line.call("join", address, Ranks(i, count, 60)) for i, line in enumerate(lines)])
        given, result = [("as it is", arg) for arg in (function, *args)], next(IDS)
        ray.get([line.call("call", called, given, result) for line in lines])
        return [channels.get(ray.get(line.call("send", "", (), result)))[0] for line in lines]

    return on


@pytest.fixture
def kept(monkeypatch, pools):
    """Runs take the session's workers, rather than start their own."""

    @contextmanager
    def started(spec):
        yield pools(**{pool.name: pool.workers for pool in spec.pools})

    monkeypatch.setattr("flowrl.train.on_ray.started", started)


@pytest.fixture
def faulty(monkeypatch, pools):
    """Return a function by which the workers of the next run are made faulty, until the end."""
    made, making = [], []

    @contextmanager
    def started(spec):
        found = pools(**{pool.name: pool.workers for pool in spec.pools})
        made.extend(line for lines in found.values() for line in lines)
        for fault in making:
            on_all(made, fault)
        yield found

    monkeypatch.setattr("flowrl.train.on_ray.started", started)
    yield making.append
    on_all(made, mended)


def on_all(lines, function):
    """Have workers call a function, which returns nothing that is kept."""
    ray.get([line.call("call", function, [], next(IDS)) for line in lines])


@pytest.fixture
def heldout(folder):  # noqa: F811
    """Return a run's folder with held-out prompts."""
    folder.write_rows("heldout.jsonl", [{"prompt": f"{c}9:", "answer": c} for c in "xyz"])
    return folder
