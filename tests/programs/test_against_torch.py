"""The weights after two steps are those of `plain`, an algorithm's few lines of plain torch."""

from functools import partial

import numpy as np
import pytest

import flowrl as fl
from flowrl import ops
from programs.dapo import dapo
from programs.dpo import dpo
from programs.dr_grpo import dr_grpo
from programs.grpo import grpo
from programs.remax import remax
from programs.rloo import rloo
from programs.sft import sft
from tests.programs import plain
from tests.programs.against import assert_same, follow, measured


def test_grpo_steps_as_plain_torch_does(ran, policy, reference):
    record, metrics, weights = ran(grpo, samples=3, kl_coef=0.3)

    batches = zip(record.groups, record.rewards, strict=True)
    last = follow(policy, [partial(plain.grpo, policy, reference, *b, 0.3) for b in batches])

    assert measured(metrics) == last
    assert_same(weights, policy)


@fl.program
def own_critic(policy: fl.Model, prompts: fl.Prompts):
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts))
    values = ops.values(policy, rollouts)
    rewards = ops.token_rewards(scores, rollouts.mask)
    advantages, returns = ops.gae(rewards, values, rollouts.mask)
    advantages = ops.whiten(advantages, rollouts.mask)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages)
        error = ops.clipped_value(new.values, values, returns)
        return ops.token_mean(surrogate, rollouts.mask) + 0.5 * ops.token_mean(error, rollouts.mask)

    policy, _ = ops.update(policy, loss, rollouts)
    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats


def test_ppo_of_a_policy_that_is_its_own_critic_steps_as_plain_torch_does(ran, model_folder):
    record, metrics, weights = ran(own_critic)

    policy = plain.own_critic_model(model_folder("llama"))
    optimiser = plain.AdamW(policy)
    for groups, scores in zip(record.groups, map(plain.flat, record.rewards), strict=True):
        samples = plain.flat(groups)
        rows = plain.ppo_batch(plain.own_critic(policy), policy, samples, scores, 0.0)
        for _ in range(2):
            loss = plain.own_critic_loss(policy, samples, rows)
            last = loss.item(), optimiser.step(loss)

    assert measured(metrics) == pytest.approx(last, abs=1e-9)
    assert_same(weights, policy)
    assert weights["policy", "value_head.weight"].any()


def test_dpo_steps_as_plain_torch_does(ran, policy, reference):
    record, metrics, weights = ran(dpo, beta=0.2)

    pairs = record.updated("policy")
    last = follow(policy, [partial(plain.dpo, policy, reference, p, 0.2) for p in pairs])

    assert measured(metrics) == last
    assert_same(weights, policy)


def test_sft_steps_as_plain_torch_does(ran, policy):
    record, metrics, weights = ran(sft)

    last = follow(
        policy, [partial(plain.sft, policy, samples) for samples in record.updated("policy")]
    )

    assert measured(metrics) == last
    assert_same(weights, policy)


def test_rloo_steps_as_plain_torch_does(ran, policy, reference):
    record, metrics, weights = ran(rloo, samples=3, kl_coef=0.3)

    batches = zip(record.groups, record.rewards, strict=True)
    last = follow(policy, [partial(plain.rloo, policy, reference, *b, 0.3) for b in batches])

    assert measured(metrics) == last
    assert_same(weights, policy)


def test_dr_grpo_at_another_temperature_steps_as_plain_torch_does(ran, policy):
    record, metrics, weights = ran(dr_grpo, {"policy": {"temperature": 0.7}}, samples=3, horizon=8)

    batches = zip(record.groups, record.rewards, strict=True)
    last = follow(policy, [partial(plain.dr_grpo, policy, *b, 8, 0.7) for b in batches])

    assert measured(metrics) == last
    assert_same(weights, policy)


@pytest.mark.parametrize(("left_over", "went_on"), [(0, 0), (1, 1), (9, 2)])
def test_dapo_steps_as_plain_torch_does(left_over, went_on, ran, policy):
    record, metrics, weights = ran(dapo, groups=2, samples=3, left_over=left_over, overlong=(8, 6))

    pairs = list(zip(plain.flat(record.groups), plain.flat(record.rewards), strict=True))
    second = pairs[-int(metrics["drawn"]) :]
    first, later = (
        [pair for pair in draws if len(set(pair[1])) > 1]
        for draws in (pairs[: -len(second)], second)
    )
    left = first[2:][-left_over:] if left_over else []
    assert len(left) == went_on
    kept = [first[:2], [*left, *later][:2]]
    last = follow(policy, [partial(plain.dapo, policy, *zip(*k, strict=True), 8, 6) for k in kept])

    assert measured(metrics) == last
    assert_same(weights, policy)


def test_remax_steps_as_plain_torch_does(ran, policy):
    record, metrics, weights = ran(remax, samples=2)

    losses = []
    for turn in (0, 2):
        sampled, greedy = record.rewards[turn : turn + 2]
        gains = [s - b for many, (b,) in zip(sampled, greedy, strict=True) for s in many]
        samples = plain.flat(record.groups[turn])
        losses.append(partial(plain.reinforce_answers, policy, samples, gains))
    last = follow(policy, losses)

    assert measured(metrics) == last
    assert_same(weights, policy)


@fl.program
def running(policy: fl.Model, prompts: fl.Prompts, mean: fl.Carry = fl.Carry(0.5)):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
    advantages = rewards - mean

    def loss(new):
        terms = ops.reinforce(new.logprobs, advantages) - 0.01 * new.entropy
        return ops.token_mean(terms, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, 0.9 * mean + 0.1 * rewards.mean(), stats


def test_reinforce_with_a_running_baseline_and_an_entropy_bonus_steps_as_plain_torch_does(
    ran, policy
):
    record, metrics, weights = ran(running)

    mean, losses = 0.5, []
    for groups, rewards in zip(record.groups, record.rewards, strict=True):
        scores = plain.flat(rewards)
        gains = [score - mean for score in scores]
        losses.append(partial(plain.reinforce, policy, plain.flat(groups), gains, 0.01))
        mean = 0.9 * mean + 0.1 * float(np.mean(scores))
    last = follow(policy, losses)

    assert measured(metrics) == last
    assert_same(weights, policy)
