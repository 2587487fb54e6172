"""DAPO's dynamic sampling, with the overlong penalty: groups without a signal are never trained."""

import pytest
import torch

import flowrl as fl
from flowrl import ops
from flowrl.functional.filters import dynamic_filter
from flowrl.runtime.host import Scores
from tests.runtime import steps


@fl.program
def dapo(policy: fl.Model, prompts: fl.Prompts):
    def draw(prompts):
        return ops.score("reward", ops.generate(policy, prompts, n=3))

    batch, _, drawn = ops.sample_until(
        draw, lambda batch: ops.has_signal(batch[1]), prompts, groups=4, rounds=3
    )
    rollouts, rewards = batch
    kept = ops.watch_rewards(rewards)["reward_zero_variance"]
    lengths = ops.token_counts(rollouts.mask)
    rewards = rewards + ops.overlong_penalty(lengths, max_len=6, cache_len=2)
    advantages = ops.group_advantage(rewards)

    def loss(new):
        surrogate = ops.clipped_surrogate(
            new.logprobs, rollouts.logprobs, advantages, clip=0.2, clip_high=0.28
        )
        return ops.token_mean(surrogate, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats | {"drawn": drawn.float(), "dead": kept, **ops.watch_lengths(rollouts)}


def every_other_prompt(functions, rows, completions, samples, step):
    """Tell the samples of odd rows apart, and give all of even ones 0.1."""
    scores = [n / 2 if row.id % 2 else 0.1 for row, n in zip(rows, samples, strict=True)]
    return Scores([scores], {})


def test_rounds_are_drawn_until_enough_groups_have_a_signal(model_folder, tokenizer):
    traced = fl.trace(dapo)
    ready = steps.executor(
        traced, steps.roles(traced, model_folder), tokenizer, score=every_other_prompt
    )

    _, metrics = steps.run(ready, {"prompts": steps.Texts(tokenizer)})

    assert metrics["drawn"] == 8
    assert metrics["dead"] == 0
    assert metrics["policy/grad_norm"] > 0
    assert 1 <= metrics["length_min"] <= metrics["length_mean"] <= metrics["length_max"] <= 6


SEEN = []


@fl.op("f32[prompt, sample] -> f32[]", per="batch")
def see(rewards):
    """Note the rewards of pairs."""
    SEEN.append(rewards.view(-1, 2).tolist())
    return rewards.sum()


@fl.program
def drawing(policy: fl.Model, prompts: fl.Prompts, *, groups=3, rounds=3):
    def draw(prompts):
        return ops.score("reward", ops.generate(policy, prompts, n=2))[1]

    batch, surplus, drawn = ops.sample_until(
        draw, ops.has_signal, prompts, groups=groups, rounds=rounds
    )
    return {"drawn": drawn.float(), "batch": see(batch), "surplus": see(surplus)}


@pytest.mark.parametrize("seed", range(6))
def test_a_draw_until_groups_have_a_signal_is_the_filter_of_its_rounds(
    model_folder, tokenizer, seed
):
    rewards = torch.randint(2, (8, 2), generator=torch.Generator().manual_seed(seed)) + 0.0
    rewards += torch.arange(8)[:, None]

    def score(functions, rows, completions, samples, step):
        pairs = zip(rows, samples, strict=True)
        return Scores([[rewards[row.id, n].item() for row, n in pairs]], {})

    SEEN.clear()
    groups = list(enumerate(rewards.tolist()))
    rounds = [groups[start : start + 2] for start in (0, 2, 4, 6)]
    traced = fl.trace(drawing, groups=2, rounds=4)
    roles = steps.roles(traced, model_folder)
    ready = steps.executor(traced, roles, tokenizer, score=score, rows=2)
    _, metrics = steps.run(ready, {"prompts": steps.Texts(tokenizer)})

    found = dynamic_filter(rounds, target=2, max_rounds=4)
    assert SEEN == [rewards[found.batch].tolist(), rewards[found.surplus].tolist()]
    assert metrics["drawn"] == 2 * found.rounds_used
