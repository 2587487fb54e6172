"""What compares the samples of a prompt needs whole groups of them."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.compiler.groups import check_groups
from flowrl.errors import ProgramError

MASKED = {
    "opo": lambda r, rewards: ops.opo(rewards, r.mask),
    "reinforce_plus_plus_baseline": lambda r, rewards: ops.reinforce_plus_plus_baseline(
        rewards, r.mask
    ),
    "optimal_token_baseline": lambda r, rewards: ops.optimal_token_baseline(
        ops.token_rewards(rewards, r.mask), r.mask, r.logprobs, r.logprobs.exp()
    ),
}


def traced(advantage, *, baseline=False):
    @fl.program
    def learn(policy: fl.Model, prompts: fl.Prompts, *, samples: int = 1):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
        if baseline:
            _, best = ops.score("reward", ops.generate(policy, prompts, temperature=0.0))
            rewards = rewards - ops.align(best, to=rollouts).mean(over="sample")
        advantages = advantage(rewards)
        loss = lambda new: ops.token_mean(-new.logprobs * advantages, rollouts.mask)
        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats

    return lambda samples: fl.trace(learn, samples=samples).graph


@pytest.mark.parametrize("advantage", [ops.group_advantage, ops.leave_one_out])
def test_one_sample_a_prompt_is_no_group(advantage):
    graph = traced(advantage)

    with pytest.raises(ProgramError, match=r"every advantage would be 0\n  test_groups\.py:"):
        check_groups(graph(1))
    check_groups(graph(2))


@pytest.mark.parametrize("name", MASKED)
def test_one_sample_a_prompt_is_no_group_where_tokens_count_either(name):
    @fl.program
    def learn(policy: fl.Model, prompts: fl.Prompts, *, samples: int = 1):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
        advantages = MASKED[name](rollouts, rewards)
        loss = lambda new: ops.token_mean(ops.reinforce(new.logprobs, advantages), rollouts.mask)
        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats

    with pytest.raises(ProgramError, match=rf"^{name}: compares the samples of a prompt"):
        check_groups(fl.trace(learn).graph)
    check_groups(fl.trace(learn, samples=2).graph)


def test_a_greedy_baseline_beside_several_samples_is_fine():
    check_groups(traced(ops.group_advantage, baseline=True)(4))


def test_other_advantages_need_no_group():
    check_groups(traced(lambda rewards: rewards - 0.5)(1))


def test_samples_drawn_round_after_round_count():
    @fl.program
    def filled(policy: fl.Model, prompts: fl.Prompts):
        def draw(prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
            return ops.record(rollouts, rewards=rewards)

        batch, _, _ = ops.sample_until(
            draw, lambda b: b.rewards.mean(over="sample") > 0, prompts, groups=4, rounds=3
        )
        advantages = ops.group_advantage(batch.rewards)
        loss = lambda new: ops.token_mean(-new.logprobs * advantages, batch.mask)
        policy, stats = ops.update(policy, loss, batch)
        return policy, stats

    with pytest.raises(ProgramError, match="one sample a prompt"):
        check_groups(fl.trace(filled).graph)


@pytest.fixture
def divided():
    """Return a function that traces a scan over minibatches, whose loss reads `term(mb)`."""

    def divided(term, by):
        @fl.program
        def learn(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=4))
            batch = ops.record(rollouts, rewards=rewards)

            def body(policy, mb):
                loss = lambda new: ops.token_mean(-new.logprobs * term(mb), mb.mask)
                return ops.update(policy, loss, mb)

            policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=8, by=by))
            return policy, stats

        return fl.trace(learn).graph

    return divided


@pytest.mark.parametrize(
    "term",
    [
        lambda mb: ops.group_advantage(mb.rewards),
        lambda mb: mb.rewards - mb.rewards.mean(over="sample"),
        lambda mb: ops.reinforce_plus_plus_baseline(mb.rewards, mb.mask),
    ],
)
def test_groups_that_a_division_has_cut_are_not_compared(divided, term):
    with pytest.raises(ProgramError, match="each part would be taken for the whole group"):
        check_groups(divided(term, "sequence"))
    check_groups(divided(term, "group"))


def test_a_comparison_of_cut_groups_names_both_lines(divided):
    with pytest.raises(ProgramError) as error:
        check_groups(divided(lambda mb: ops.leave_one_out(mb.rewards), "sequence"))

    assert error.value.problem == snapshot(
        "leave_one_out: compares the samples of a prompt, which are divided here: each part would be taken for the whole group"
    )
    assert "ops.leave_one_out(mb.rewards)" in error.value.where
    assert "ops.minibatches(batch, sequences=8, by=by)" in str(error.value)


def test_samples_of_cut_groups_may_be_used_one_by_one(divided):
    check_groups(divided(lambda mb: mb.rewards * ops.token_counts(mb.mask), "sequence"))
