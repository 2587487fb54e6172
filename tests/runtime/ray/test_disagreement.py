"""Ranks that are not where the others are: told at once where that can be known, else in time."""

import json
import re
from datetime import timedelta

import attrs
import pytest
import torch.distributed as dist
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.errors import EngineError
from flowrl.runtime.pools.job import Setup
from flowrl.runtime.ranks.ranks import Fsdp2
from tests.runtime import steps
from tests.runtime.ray import jobs
from tests.runtime.ray.misled import Misled

POOLS = (Pool("train"), Pool("data", 0, ("data", "reward")))
LONG = 60
"""A time-out that none of these tests waits for."""
IN_VAIN = 30
"""One that is waited for; a busy machine needs some of it to start the ranks."""


@fl.program
def scored(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
    """Keep a copy and score before an update."""
    rollouts = ops.generate(policy, prompts)
    old = ops.snapshot(policy)
    anchor = ops.logprobs(reference, rollouts) + ops.logprobs(old, rollouts)

    def loss(new):
        return ops.token_mean(new.logprobs * anchor, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


@fl.op("f32[..., token] -> f32[..., token]", per="sample")
def waiting_alone(logprobs):
    if dist.get_rank() == 1:
        dist.monitored_barrier(timeout=timedelta(seconds=1))
    return logprobs


@fl.program
def waited(policy: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts)

    def loss(new):
        return ops.token_mean(waiting_alone(new.logprobs), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


@pytest.fixture
def error_of(pools, model_folder, tokenizer):
    """Run a step on two ranks, of which one is misled; return the error's text."""

    def error_of(program, mislead=lambda *told: told, rank_timeout=LONG):
        traced = fl.trace(program)
        roles = {
            role: attrs.evolve(setup, fsdp=Fsdp2())
            for role, setup in steps.roles(traced, model_folder).items()
        }
        lines = pools(train=2, data=1)
        lines["train"][1] = Misled.of(lines["train"][1], mislead)
        lowered = traced.lower(Cluster(POOLS), roles)
        there = jobs.executor(lowered, tokenizer, lines, rank_timeout=rank_timeout)
        with pytest.raises(EngineError) as raised:
            there.step(there.first(), there.cursors(), 0)
        return re.sub(r":\d+\b|\d+ \|", ":N", str(raised.value))

    return error_of


def from_any(text):
    """Return an error that all ranks end in, whoever is heard first."""
    return text.replace("on worker 1 of", "on worker 0 of")


def loaded(change):
    """Return what misleads a rank when it loads its part of the plan."""

    def mislead(method, dead, args):
        args = [change(arg) if isinstance(arg, Setup) else arg for arg in args]
        return method, dead, args

    return mislead


def swapped(setup):
    """Return another order of two ops."""
    plan = json.loads(setup.plan)
    nodes = plan["body"]["nodes"]
    first = next(i for i, node in enumerate(nodes) if node["op"]["class"].endswith("Snapshot"))
    nodes[first : first + 2] = reversed(nodes[first : first + 2])
    return attrs.evolve(setup, plan=json.dumps(plan))


def in_smaller_parts(setup):
    """Return a smaller budget of the model that is trained."""
    policy = setup.roles["policy"]
    options = attrs.evolve(policy.options, tokens_per_microbatch=1)
    return attrs.evolve(
        setup, roles={**setup.roles, "policy": attrs.evolve(policy, options=options)}
    )


def test_a_rank_that_is_told_another_op_is_named_with_both(error_of):
    assert from_any(error_of(scored, loaded(swapped))) == snapshot("""\
snapshot: ranks are about to do different things: worker 0 of pool `train`: `snapshot` (test_disagreement.py:N); worker 1 of pool `train`: `logprobs` (test_disagreement.py:N)
  test_disagreement.py:N
   :N     old = ops.snapshot(policy)
                  ^^^^^^^^^^^^^^^^^^^^
  on worker 0 of pool `train` (pid 1 on here)
help: all are told the same, in the same order: look for what differs on one of them, such as the files of a model, or code that depends on the rank\
""")


def test_ranks_with_other_numbers_of_microbatches(error_of):
    assert from_any(error_of(scored, loaded(in_smaller_parts))) == snapshot("""\
logprobs: ranks are about to do different things: worker 0 of pool `train`: `logprobs` (test_disagreement.py:N), 1 microbatch of `policy`; worker 1 of pool `train`: `logprobs` (test_disagreement.py:N), 2 microbatches of `policy`
  test_disagreement.py:N
   :N     anchor = ops.logprobs(reference, rollouts) + ops.logprobs(old, rollouts)
                                                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  on worker 0 of pool `train` (pid 1 on here)
help: all are told the same, in the same order: look for what differs on one of them, such as the files of a model, or code that depends on the rank\
""")


def test_a_rank_that_leaves_ops_out_is_waited_for_and_told_with_where_it_was(error_of):
    def not_told(method, dead, args):
        return ("place", dead, ()) if method == "evaluate" else (method, dead, args)

    assert error_of(scored, not_told, rank_timeout=IN_VAIN) == snapshot("""\
snapshot: worker 0 of pool `train` waited at `snapshot` (test_disagreement.py:N) for the others, of which one ended or did not come within 30 s; worker 1 of pool `train` was last at `generate` (test_disagreement.py:N), 20 weights of `policy`
  test_disagreement.py:N
   :N     old = ops.snapshot(policy)
                  ^^^^^^^^^^^^^^^^^^^^
  on worker 0 of pool `train` (pid 1 on here)
help: look at what the other ranks say; `cluster.rank_timeout` is how long one waits\
""")


def test_a_rank_that_waits_where_no_other_comes(error_of):
    text = error_of(waited, rank_timeout=IN_VAIN)

    assert text.startswith("update: waiting_alone: the function raised RuntimeError: ")
    assert "  on worker 1 of pool `train`" in text
