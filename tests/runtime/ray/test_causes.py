"""Of calls that failed, the one that the others follow from is told, whichever is heard first."""

import os
import re
import signal
import time
from types import SimpleNamespace

import psutil
import pytest
import ray

import flowrl as fl
from flowrl.compiler.cluster import Cluster
from flowrl.errors import EngineError
from flowrl.runtime.pools import channels
from flowrl.runtime.pools.causes import Call, Causes
from flowrl.runtime.pools.failures import Failure, SenderEndedError, WorkerDied
from flowrl.runtime.pools.held import IDS
from flowrl.runtime.pools.lines import Line
from flowrl.runtime.pools.pools import PoolSize, RaySpec, started
from flowrl.runtime.ranks.agreement import RankMissingError
from programs.grpo import grpo
from tests.runtime import steps
from tests.runtime.ray import jobs
from tests.runtime.ray.test_failures import POOLS


class Named(Line):
    """A line whose replies are named after what was called."""

    def send(self, method, dead, args, replies):
        names = [f"{method} {self.index} {number}" for number in range(replies)]
        return names if replies > 1 else names[0]


class Script:
    """Replies that arrive as written: by each, after how many looks, and what it raises."""

    def __init__(self, **written):
        self.written = {name.replace("_", " "): what for name, what in written.items()}
        self.looks = 0

    def get(self, replies):
        for reply in [replies] if isinstance(replies, str) else replies:
            _, error = self.written.get(reply, (0, None))
            if error:
                raise error

    def arrived(self, replies):
        self.looks += 1
        return all(self.written.get(reply, (0, None))[0] <= self.looks for reply in replies)


NEVER = 10**9
DIED = WorkerDied()
MISSING = Failure(RankMissingError("worker 0 waited"), 0)
ENDED = Failure(SenderEndedError("the worker that sent this has ended"), 0)


LINES = [Named("any", index) for index in range(3)]


def cause(script, *calls):
    """Return the call that is told of these, each a method and a worker, and its error."""
    made = [Call(method, LINES[i].call(method), LINES[i]) for method, i in calls]
    call, error = Causes(script).first(made, (), LINES)
    return f"{call.method} {call.line.index}", error


def test_one_of_several_replies_tells_that_a_call_has_failed():
    script = Script(scatter_0_0=(0, DIED), scatter_0_1=(NEVER, None))
    reply = LINES[0].call("scatter", replies=2)

    call, error = Causes(script).first([Call("scatter", reply, LINES[0])], (), LINES)

    assert call.reply == reply
    assert error is DIED


def test_a_worker_died_of_the_first_call_that_it_has_not_done_whichever_is_heard_first():
    script = Script(b_0_0=(8, DIED), c_0_0=(4, DIED), d_0_0=(0, DIED))

    assert cause(script, ("a", 0), ("b", 0), ("x", 1), ("c", 0), ("d", 0)) == ("b 0", DIED)


def test_of_a_rank_that_waited_and_one_that_died_the_dead_one_is_told():
    script = Script(a_0_0=(0, MISSING), a_1_0=(8, DIED), b_1_0=(0, DIED))

    assert cause(script, ("a", 0), ("a", 1), ("b", 0), ("b", 1)) == ("a 1", DIED)


def test_a_rank_that_waited_is_told_as_soon_as_all_others_are_done():
    script = Script(a_0_0=(0, MISSING))

    assert cause(script, ("a", 0), ("a", 1), ("b", 0), ("b", 1)) == ("a 0", MISSING)
    assert script.looks < 10


def test_whoever_sent_what_another_worker_lacks_is_found():
    script = Script(long_1_0=(NEVER, None), receive_0_0=(0, ENDED), place_2_0=(8, DIED))

    assert cause(script, ("send", 2), ("long", 1), ("receive", 0)) == ("place 2", DIED)


def end_before_values_are_read(pid):
    """Have another worker end before this one reads what it has been sent."""
    from flowrl.runtime.pools import worker

    get = channels.get

    def after(box):
        os.kill(pid, signal.SIGKILL)
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        return get(box)

    worker.channels = SimpleNamespace(**vars(channels) | {"get": after})


@pytest.mark.slow
def test_a_worker_that_ends_after_it_has_sent_is_told_not_the_one_that_reads(
    pools, model_folder, tokenizer
):
    with started(
        RaySpec((PoolSize("rollout", 1, cpus=0.25), PoolSize("data", 1, cpus=0.25)))
    ) as own:
        traced = fl.trace(grpo, samples=2)
        lowered = traced.lower(Cluster(POOLS), steps.roles(traced, model_folder))
        there = jobs.executor(lowered, tokenizer, {**pools(train=1), **own})
        pid = int(re.match(r"pid (\d+)", own["data"][0].place)[1])
        told = end_before_values_are_read, [("as it is", pid)], next(IDS)
        ray.get(own["rollout"][0].call("call", *told))

        with pytest.raises(EngineError) as raised:
            there.step(there.first(), there.cursors(), 0)

    assert re.match(rf"worker 0 of pool `data` \(pid {pid} on \S+\) died", str(raised.value))
