"""What goes wrong on the way of weights is told with its edge, in time."""

import os
import re
import signal

import attrs
import psutil
import pytest
import ray
import torch
from inline_snapshot import snapshot

import flowrl as fl
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.errors import EngineError
from flowrl.runtime.pools.held import IDS
from flowrl.runtime.pools.pools import PoolSize, RaySpec, started
from flowrl.runtime.ranks.ranks import Fsdp2
from flowrl.runtime.reshard import reshard
from programs.grpo import grpo
from tests.rewards.processes import ended
from tests.runtime import steps
from tests.runtime.ray import jobs
from tests.runtime.ray.misled import Misled

POOLS = (
    Pool("train", layouts={"policy": "fsdp2", "reference": "fsdp2"}),
    Pool("rollout", 0, ("policy.generate",), {"policy.generate": "tp2"}),
    Pool("data", 0, ("data", "reward")),
)


@pytest.fixture
def error_of(model_folder, tokenizer):
    """Run a step on these workers; return the error's text."""

    def error_of(lines, rank_timeout):
        traced = fl.trace(grpo, samples=2, kl_coef=0.1)
        roles = {
            role: attrs.evolve(setup, fsdp=Fsdp2())
            for role, setup in steps.roles(traced, model_folder).items()
        }
        lowered = traced.lower(Cluster(POOLS), roles)
        there = jobs.executor(lowered, tokenizer, lines, rank_timeout=rank_timeout)
        with pytest.raises(EngineError) as raised:
            there.step(there.first(), there.cursors(), 0)
        return re.sub(r":\d+\b|\d+ \||pid \d+ on \S+(?=\))", ":N", str(raised.value))

    return error_of


def from_any(text):
    """Return an error that three workers end in, whoever is heard first."""
    text = re.sub(r"worker \d of pool `\w+` waited", "worker N waited", text)
    return re.sub(r"\n  on worker \d of pool `\w+`", "\n  on worker N", text)


def test_a_worker_that_stays_away_from_a_reshard_is_waited_for_and_told(error_of, pools):
    def not_told(method, dead, args):
        away = method in ("reshard", "sample")
        return ("place", dead, ()) if away else (method, dead, args)

    lines = pools(train=2, rollout=2, data=1)
    lines["rollout"][1] = Misled.of(lines["rollout"][1], not_told)

    text = error_of(lines, rank_timeout=15)

    assert from_any(text) == snapshot("""\
reshard: worker N waited at bringing `policy`: train fsdp2 -> rollout tp2 for the others, of which one ended or did not come within 15 s; worker 1 of pool `rollout` was not seen
  grpo.py:N
   :N     rollouts = ops.generate(policy, prompts, n=samples)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  on worker N (:N)
help: look at what the other ranks say; `cluster.rank_timeout` is how long one waits\
""")


def flipping(move, held, needed, wire):
    """Bring weights as it is done, and let memory alter one bit."""
    sent = reshard(move, held, needed, wire)
    needed["model.layers.1.mlp.down_proj.weight"].view(torch.int32)[3, 5] ^= 1
    return sent


def flip_at_reshard():
    """Have a bit of this worker's memory be altered in its next reshard."""
    from flowrl.runtime.ranks import way

    way.reshard = flipping


def forget():
    """Have this worker bring weights as ever."""
    from flowrl.runtime.ranks import way

    way.reshard = reshard


def test_one_bit_that_is_not_what_was_sent_ends_the_run(error_of, pools):
    lines = pools(train=2, rollout=2, data=1)
    wrong = lines["rollout"][1]
    ray.get(wrong.call("call", flip_at_reshard, [], next(IDS)))

    text = error_of(lines, rank_timeout=60)
    ray.get(wrong.call("call", forget, [], next(IDS)))

    assert from_any(text) == snapshot("""\
reshard: weights are not what was sent, after the reshard `fsdp2 -> tp2`: `model.layers.1.mlp.down_proj.weight` on worker 1 of pool `rollout`
  grpo.py:N
   :N     rollouts = ops.generate(policy, prompts, n=samples)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  on worker N (:N)
help: start again from a checkpoint; memory or links that alter bits fail again soon\
""")


def dying(*_):
    """End this process as the kernel does, where its part of a reshard begins."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_reshard():
    """Have this worker die in its next reshard, where the others are by then."""
    from flowrl.runtime.ranks import way

    way.reshard = dying


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_reshard_is_told_with_the_edge(error_of, pools):
    with started(RaySpec((PoolSize("rollout", 2, cpus=0.25),))) as own:
        lines = {**pools(train=2, data=1), **own}
        ray.get(lines["rollout"][1].call("call", die_at_reshard, [], next(IDS)))

        text = error_of(lines, rank_timeout=60)
        processes = psutil.Process().children(recursive=True)
        workers = [p for p in processes for line in own["rollout"] if f"pid {p.pid} " in line.place]

    assert text == snapshot("""\
worker 1 of pool `rollout` (:N) died while it ran `reshard` of `policy`: train fsdp2 -> rollout tp2
  grpo.py:N
   :N     rollouts = ops.generate(policy, prompts, n=samples)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: the kernel ends processes when memory runs out; look into its log, and into the worker's below Ray's session folder\
""")
    states = [group["state"] for group in ray.util.placement_group_table().values()]
    assert states.count("CREATED") == 1  # that of the session's workers
    assert len(workers) in (1, 2)  # the dead one may not be reaped yet
    assert ended(*workers)
