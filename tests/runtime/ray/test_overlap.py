"""Ops of different pools that need nothing of each other run at the same time."""

import time
from pathlib import Path

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from tests.runtime import steps
from tests.runtime.ray import jobs


def meeting(folder, mine, other):
    """Return an op that leaves a file and waits until the other op has left its own."""

    @fl.op("f32[prompt, sample, token] -> f32[prompt, sample, token]", per="batch")
    def meet(x):
        (Path(folder) / mine).touch()
        deadline = time.monotonic() + 300
        while not (Path(folder) / other).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{mine} waited for {other}")
            time.sleep(0.01)
        return x

    return meet


def test_two_ops_that_wait_for_each_other_meet(pools, model_folder, tokenizer, tmp_path):
    here, there = meeting(tmp_path, "a", "b"), meeting(tmp_path, "b", "a")

    @fl.program
    def program(policy: fl.Model, teacher: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        rollouts, _ = ops.score("reward", ops.generate(policy, prompts, n=2))
        a = here(ops.logprobs(teacher, rollouts))
        b = there(ops.logprobs(reference, rollouts))
        policy, stats = ops.update(
            policy,
            lambda new: ops.token_mean(
                ops.kl(new.logprobs, a) + ops.kl(new.logprobs, b), rollouts.mask
            ),
            rollouts,
        )
        return policy, stats

    split = [Pool(role, 0, (role,)) for role in ("policy", "teacher", "reference")]
    traced = fl.trace(program)
    lowered = traced.lower(
        Cluster((*split, Pool("data", 0, ("data", "reward")))), steps.roles(traced, model_folder)
    )
    executor = jobs.executor(lowered, tokenizer, pools(policy=1, teacher=1, reference=1, data=1))

    done = executor.step(executor.first(), executor.cursors(), 0)

    assert done.metrics["policy/loss"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
