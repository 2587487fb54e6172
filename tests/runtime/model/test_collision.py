"""The chance that two draws are the same token: what the optimal token baseline asks of a model."""

import pytest
import torch

import flowrl as fl
from flowrl import ops
from flowrl.runtime.model.language import token_outputs
from tests.runtime import steps


@fl.program
def otb(policy: fl.Model, prompts: fl.Prompts):
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=4))
    rewards = ops.token_rewards(scores, rollouts.mask)
    logprobs, collision = ops.logprobs(policy, rollouts), ops.collision(policy, rollouts)
    advantages = ops.optimal_token_baseline(rewards, rollouts.mask, logprobs, collision)

    def loss(new):
        return ops.token_mean(ops.reinforce(new.logprobs, advantages), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats | {
        "collision_min": collision.min(mask=rollouts.mask),
        "collision_max": collision.max(mask=rollouts.mask),
    }


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_it_is_the_sum_of_squared_probabilities(temperature):
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    tokens = torch.zeros(5, dtype=torch.int64)

    made = token_outputs(logits, tokens, ["collision"], temperature)["collision"]

    probabilities = (logits / temperature).softmax(-1)
    torch.testing.assert_close(made, probabilities.square().sum(-1))


def test_the_optimal_token_baseline_trains_a_model(model_folder, tokenizer):
    traced = fl.trace(otb)
    ready = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
    before = steps.weights(ready.first())

    carry, metrics = steps.run(ready, {"prompts": steps.Texts(tokenizer)})

    assert 1 / 64 <= metrics["collision_min"] <= metrics["collision_max"] <= 1
    assert metrics["policy/grad_norm"] > 0
    assert any(not torch.equal(w, before[key]) for key, w in steps.weights(carry).items())
