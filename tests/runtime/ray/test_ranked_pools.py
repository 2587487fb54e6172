"""A pool whose workers are ranks trains as one process does, however many they are."""

import re
from zlib import crc32

import attrs
import optree
import pytest
import ray
import torch
from inline_snapshot import snapshot
from safetensors.torch import load_file
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.errors import EngineError
from flowrl.runtime.ranks.ranks import Fsdp2
from programs.dpo import dpo
from programs.grpo import grpo
from programs.pf_ppo import pf_ppo
from programs.ppo import ppo
from tests.runtime import steps
from tests.runtime.ray import jobs

DATA = Pool("data", 0, ("data", "reward"))
APART = (Pool("train"), Pool("rollout", 0, ("policy.generate",)), DATA)
TOGETHER = (Pool("train"), DATA)
OPTIONS = attrs.evolve(steps.SMOOTH, tokens_per_microbatch=20, max_grad_norm=0.5)
GRPO = grpo, {"samples": 3, "kl_coef": 0.3}
FSDP = Fsdp2()
PPO = ppo, {"minibatch": 2, "epochs": 2}


@pytest.fixture
def both(model_folder, tokenizer, pools, tmp_path):
    """Run three steps of a program here and on ranks; return both metrics and weights."""

    def both(program, hyperparameters, split, workers, *, fsdp=FSDP, whole=(), rows=4, budget=20):
        traced = fl.trace(program, **hyperparameters)
        options = attrs.evolve(OPTIONS, tokens_per_microbatch=budget)
        roles = steps.roles(traced, model_folder, dtype="float64", options=OPTIONS, block=4)
        here = steps.executor(traced, roles, tokenizer, rows=rows)
        metrics, carry = jobs.run(here, steps.cursors(traced, tokenizer), 3)
        divided = {
            role: attrs.evolve(setup, options=options, fsdp=None if role in whole else fsdp)
            for role, setup in roles.items()
        }
        lowered = traced.lower(Cluster(split), divided)
        lines = pools(**(dict.fromkeys([pool.name for pool in split], 1) | workers))
        there = jobs.executor(lowered, tokenizer, lines, rows=rows)
        found, held = jobs.run(there, there.cursors(), 3)
        versions = there.save(str(tmp_path))
        saved = {role: load_file(tmp_path / role / "model.safetensors") for role in versions}
        assert_alike(lines["train"], {role: held[role] for role in versions})
        buffers = there.save_rows(str(tmp_path / "there"), held)
        assert here.save_rows(str(tmp_path / "here"), carry) == buffers
        for name in buffers:
            assert_rows(*(torch.load(tmp_path / side / f"{name}.pt") for side in ("here", "there")))
        return (metrics, carry), (found, saved)

    return both


def assert_alike(ranks, models):
    """Assert that all ranks have the same bits of each model."""
    for model in models.values():
        assert model.lines == ranks
        found = ray.get([line.call("number", bits, model.id) for line in ranks])
        assert len(set(found)) == 1


def assert_rows(expected, found):
    """Assert that two files of carried rows hold the same, but for rounding."""
    leaves = [optree.tree_leaves(rows) for rows in (expected, found)]
    for a, b in zip(*leaves, strict=True):
        assert torch.is_tensor(a) or a == b
        assert not torch.is_tensor(a) or torch.allclose(a, b, atol=1e-6)


def bits(handle):
    """Return a number that another bit anywhere in a model's weights would change."""
    return crc32(b"".join(w.numpy().tobytes() for w in handle.engine.weights().values()))


def assert_close_to_one_rank(both):
    """Assert metrics and weights as one process has them, but for rounding in float64."""
    (metrics, carry), (found, saved) = both
    for step, expected in zip(found, metrics, strict=True):
        assert step == pytest.approx(expected, rel=1e-10, abs=1e-10)
    for role, weights in saved.items():
        own = carry[role].engine.weights()
        assert weights.keys() == own.keys()
        assert_close(weights, dict(own), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("program", "split", "workers"),
    [
        (GRPO, APART, {"train": 2, "rollout": 2}),
        (GRPO, TOGETHER, {"train": 3}),
        (PPO, APART, {"train": 3}),
        (PPO, TOGETHER, {"train": 2}),
        ((dpo, {}), TOGETHER, {"train": 2}),
        ((pf_ppo, {"minibatch": 2, "capacity": 4}), TOGETHER, {"train": 2}),
    ],
)
def test_weights_and_metrics_are_those_of_one_rank(program, split, workers, both):
    assert_close_to_one_rank(both(*program, split, workers))


def test_weights_that_are_whole_train_beside_weights_that_are_divided(both):
    assert_close_to_one_rank(both(*PPO, TOGETHER, {"train": 2}, whole=["critic"]))


def test_replicas_of_divided_weights_train_as_one_rank_does(both):
    assert_close_to_one_rank(both(*PPO, TOGETHER, {"train": 4}, fsdp=Fsdp2(replicas=2)))


@pytest.mark.parametrize("budget", [1, 10_000])
def test_microbatches_of_ranks_change_nothing(budget, both):
    assert_close_to_one_rank(both(*GRPO, TOGETHER, {"train": 2}, budget=budget))


@fl.program
def averaged(policy: fl.Model, average: fl.Model, prompts: fl.Prompts):
    """Train on one sequence, with what was before and an average of it all."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
    old = ops.snapshot(policy)
    anchor = ops.logprobs(old, rollouts) + ops.logprobs(average, rollouts)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, rewards, clip=0.2)
        return ops.token_mean(surrogate + 0.1 * (new.logprobs - anchor) ** 2, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    average = ops.ema(average, policy, decay=0.5)
    return policy, average, stats


def test_a_rank_without_rows_takes_part(both):
    done = both(averaged, {}, APART, {"train": 2}, rows=1)

    assert_close_to_one_rank(done)
    assert done[1][0][-1]["policy/grad_norm"] > 0


@fl.op("f32[..., token] -> f32[..., token]", per="sample")
def not_of_the_first(logprobs):
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("not here")
    return logprobs


@fl.program
def divided(policy: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts)

    def loss(new):
        return ops.token_mean(not_of_the_first(new.logprobs), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


@fl.program
def chosen(policy: fl.Model, prompts: fl.Prompts):
    """Ask for a number of what the ranks do not finish."""
    policy, stats = divided(policy, prompts)
    told = ops.cond(stats["policy/loss"] > 0.0, lambda: 1.0, lambda: 2.0)
    return policy, stats | {"told": told}


@pytest.mark.parametrize("program", [divided, chosen])
def test_the_error_of_one_rank_is_told_while_the_others_wait(
    program, model_folder, tokenizer, pools
):
    traced = fl.trace(program)
    roles = {
        role: attrs.evolve(setup, fsdp=Fsdp2())
        for role, setup in steps.roles(traced, model_folder).items()
    }
    lowered, lines = traced.lower(Cluster(TOGETHER), roles), pools(train=2, data=1)
    there = jobs.executor(lowered, tokenizer, lines, rank_timeout=15)

    with pytest.raises(EngineError) as raised:
        there.step(there.first(), there.cursors(), 0)

    still = ray.wait([lines["train"][0].actor.do.remote("place", ())], timeout=0)[1]
    assert len(still) == 1
    assert re.sub(r":\d+\b|\d+ \|", ":N", str(raised.value)) == snapshot("""\
update: not_of_the_first: the function raised ValueError: not here
  test_ranked_pools.py:N
  test_ranked_pools.py:N
  :N     policy, stats = ops.update(policy, loss, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  on worker 1 of pool `train` (pid 1 on here)
help: it was called with tensors of shapes (5,), per='sample'\
""")
