"""The gradient of a minibatch is that of the loss, however its rows meet the model."""

import attrs
import pytest
import torch
from torch.testing import assert_close

import flowrl as fl
from flowrl import ops
from flowrl.ops.model import Update
from programs.dpo import dpo
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps


@fl.program
def clip_cov(policy: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=4))
    advantages = ops.group_advantage(rewards)

    def loss(new):
        covered = ops.clip_cov(
            new.logprobs, rollouts.logprobs, advantages, rollouts.mask, fraction=0.2, low=-9, high=9
        )
        return ops.token_mean(covered, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


@fl.op("f32[..., token] -> f32[..., token]", per="sample")
def centred(logprobs):
    return logprobs - logprobs.mean()


@fl.program
def own_op(policy: fl.Model, prompts: fl.Prompts):
    """A user's op, a weight of each prompt, an entropy bonus, a mean over sequences."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=3))
    weight = rewards.mean(over="sample")

    def loss(new):
        terms = -weight * centred(new.logprobs) * new.logprobs - 0.1 * new.entropy
        return ops.sequence_mean(terms, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


PROGRAMS = {
    "grpo": (grpo, {"samples": 3, "kl_coef": 0.3}, 1),
    "ppo": (ppo, {"minibatch": 3, "epochs": 2}, 1),
    "dpo": (dpo, {}, 2),
    "clip_cov": (clip_cov, {}, 2),
    "own_op": (own_op, {}, 1),
}


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def step(model_folder, tokenizer):
    """Run one step of a program on fixed rollouts; return its metrics, and the weights around it."""

    def step(name, budget, packing, *, lowered=True):
        program, hyperparameters, _ = PROGRAMS[name]
        options = attrs.evolve(steps.SMOOTH, tokens_per_microbatch=budget, packing=packing)
        traced = fl.trace(program, **hyperparameters)
        roles = steps.roles(traced, model_folder, dtype="float64", options=options)
        graph = traced.lower().graph if lowered else traced.graph
        ready = steps.executor(traced, roles, tokenizer, graph=graph, generator=steps.FixedTokens())
        data = steps.TwoAnswers(tokenizer) if name == "dpo" else steps.Texts(tokenizer)
        before = steps.weights(ready.first())
        carry, metrics = steps.run(ready, {traced.inputs[-1].name: data})
        return metrics, before, steps.weights(carry)

    return step


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_is_the_same_for_every_microbatch_size_packing_and_number_of_passes(name, step):
    expected, before, after = step(name, 10_000, "padded", lowered=False)

    ways = [(b, p, True) for b in (1, 7, 50, 10_000) for p in ("padded", "packed")]
    for budget, packing, lowered in [*ways, (50, "packed", False)]:
        metrics, _, got = step(name, budget, packing, lowered=lowered)

        for key, value in after.items():
            assert_close(got[key], value, rtol=0, atol=1e-12)
        assert metrics == pytest.approx(expected, rel=1e-10, abs=1e-10)
    moved = {
        role
        for (role, key), value in after.items()
        if (value - before[role, key]).abs().max() > 1e-3
    }
    assert moved == {"policy", "critic"} & {role for role, _ in after}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loss_takes_the_passes_that_it_needs(name):
    program, hyperparameters, passes = PROGRAMS[name]

    graph = fl.trace(program, **hyperparameters).lower().graph

    updates = [n.op for inner in graph.nested() for n in inner.nodes if isinstance(n.op, Update)]
    assert {op.passes for op in updates} == {passes}
