"""DAPO's dynamic sampling, with the overlong penalty: groups without a signal are never trained."""

import pytest
import torch
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
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


def every_other_prompt(functions, rows, completions, samples, step, given):
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

    def score(functions, rows, completions, samples, step, given):
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
    assert [rewards[found.batch].tolist(), rewards[found.surplus].tolist()] == SEEN
    assert metrics["drawn"] == 2 * found.rounds_used


@fl.program
def leaving_over(
    policy: fl.Model,
    prompts: fl.Prompts,
    surplus: fl.Carry = fl.Carry(fl.Buffer()),
    *,
    groups,
    rounds,
):
    def draw(prompts):
        return ops.score("reward", ops.generate(policy, prompts, n=3))

    (rollouts, _), surplus, drawn = ops.sample_until(
        draw,
        lambda batch: ops.has_signal(batch[1]),
        prompts,
        groups=groups,
        rounds=rounds,
        surplus=surplus,
        capacity=2,
    )
    loss = lambda new: ops.token_mean(-new.logprobs, rollouts.mask)
    policy, stats = ops.update(policy, loss, rollouts)
    age = rollouts.version.float().max() - rollouts.version.float().min()
    return policy, surplus, stats | {"drawn": drawn.float(), "age": age}


def only_at_first(functions, rows, completions, samples, step, given):
    """Score as `every_other_prompt` does in the first step, and all the same later."""
    (scores,) = every_other_prompt(functions, rows, completions, samples, step, given).values
    return Scores([[0.1 if step else x for x in scores]], {})


def followed(model_folder, tokenizer, steps_taken, score=every_other_prompt, **hyperparameters):
    """Return what each step drew, the age of its oldest group, and the rows left over."""
    traced = fl.trace(leaving_over, **hyperparameters)
    ready = steps.executor(traced, steps.roles(traced, model_folder), tokenizer, score=score)
    carry, cursors, found = ready.first(), {"prompts": steps.Texts(tokenizer)}, []
    for step in range(steps_taken):
        done = ready.step(carry, cursors, step)
        carry = done.carry
        rows = [row.id for row in carry["surplus"]["surplus.0.prompts.rows"]]
        found.append((done.metrics["drawn"], done.metrics["age"], rows))
    return found


def test_groups_left_over_begin_the_next_batch(model_folder, tokenizer):
    found = followed(model_folder, tokenizer, 3, groups=3, rounds=3)

    # of rows 0 to 7, round and round, the odd ones are kept: 1 3 5 | 7 1 3 | 5 7 1
    assert found == [(8, 0, [7]), (4, 1, []), (8, 0, [3])]


def test_no_more_groups_are_left_over_than_there_is_room_for(model_folder, tokenizer):
    found = followed(model_folder, tokenizer, 3, groups=1, rounds=1)

    assert found == [(4, 0, [3]), (4, 0, [5, 7]), (4, 0, [1, 3])]


def test_a_shortfall_counts_the_groups_left_over(model_folder, tokenizer):
    with pytest.raises(EngineError) as error:
        followed(model_folder, tokenizer, 2, only_at_first, groups=3, rounds=2)

    assert error.value.problem == snapshot(
        "sample_until: 3 groups wanted, 1 left over and 0 of 8 prompts kept in 2 rounds; all samples have the same `reward` in 100% of the groups: 0.1 in 100%"
    )
