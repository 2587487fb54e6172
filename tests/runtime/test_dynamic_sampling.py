"""DAPO's dynamic sampling, with the overlong penalty: groups without a signal are never trained."""

import flowrl as fl
from flowrl import ops
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
