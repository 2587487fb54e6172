"""A sample that an op refuses is told by its row of the data."""

import re

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import EngineError
from flowrl.runtime.engine import Sampling
from flowrl.runtime.host import Scores
from tests.runtime import steps

NUMBERS = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def scores(functions, rows, completions, samples, step, given):
    """Score 1 to 8: of four prompts, two samples each."""
    return Scores([NUMBERS], {})


def dropping(functions, rows, completions, samples, step, given):
    """Score 1 to 8, but nothing for the first sample, whose group is dropped."""
    return Scores([[None, *NUMBERS[1:]]], {})


@pytest.fixture
def error_of(model_folder, tokenizer):
    """Run a step of a program that fails; return the error's text, lines not numbered."""

    def error_of(program, score=scores, **host):
        traced = fl.trace(program)
        roles = steps.roles(traced, model_folder)
        made = steps.executor(traced, roles, tokenizer, score=score, **host)
        with pytest.raises(EngineError) as raised:
            steps.run(made, {"prompts": steps.Texts(tokenizer)})
        return re.sub(r"\.py:\d+\b|\d+ \|", ".py:N", str(raised.value))

    return error_of


@fl.program
def advantages(policy: fl.Model, prompts: fl.Prompts):
    rewards = ops.score("reward", ops.generate(policy, prompts, n=2))[1]
    return {"mean": ops.group_advantage(rewards / (rewards - 6.0)).mean()}


def test_a_reward_that_is_not_finite_is_told_by_file_row_and_sample(error_of):
    assert error_of(advantages) == snapshot("""\
group_advantage: the function refused: rewards must be finite numbers; sample 5, number 1 of group 2, has inf (1 of 8 samples are not finite)
  texts:2 (row 2), sample 1
  test_origins.py:N
   .py:N     return {"mean": ops.group_advantage(rewards / (rewards - 6.0)).mean()}
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: look for 0 / 0, the log of 0 or an overflow in what this sample gives; `ops.usable(x)` says where x is finite\
""")


def test_a_row_is_found_behind_groups_that_were_dropped(error_of):
    text = error_of(advantages, dropping, drop_failed=True)

    assert "sample 3, number 1 of group 1, has inf (1 of 6" in text
    assert "  texts:2 (row 2), sample 1\n" in text


def test_a_row_is_found_behind_a_selection(error_of):
    @fl.program
    def selected(policy: fl.Model, prompts: fl.Prompts):
        rewards = ops.score("reward", ops.generate(policy, prompts, n=2))[1]
        chosen = ops.select(rewards, where=rewards.max(over="sample") > 4.0)
        return {"mean": ops.leave_one_out(chosen / (chosen - 7.0)).mean()}

    assert "\n  texts:3 (row 3), sample 0\n" in error_of(selected)


def test_a_score_that_a_critic_would_learn_from_is_told_by_row(error_of):
    @fl.program
    def placed(policy: fl.Model, prompts: fl.Prompts):
        rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=2))
        rewards = ops.token_rewards(scores / (scores - 4.0), rollouts.mask)
        return {"return": ops.discounted_returns(rewards, rollouts.mask).mean(mask=rollouts.mask)}

    assert "\n  texts:1 (row 1), sample 1\n" in error_of(placed)


def test_log_probabilities_in_a_loss_are_told_by_row(error_of):
    @fl.program
    def weighed(policy: fl.Model, prompts: fl.Prompts):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
        sampled = rollouts.logprobs

        def loss(new):
            gap = new.logprobs.detach() - sampled + ops.where(rewards > 7.5, 1e38, 1.0) * 1e38
            weights = ops.importance_weights(gap, gap, rollouts.mask)[0]
            return ops.token_mean(new.logprobs * weights, rollouts.mask)

        return ops.update(policy, loss, rollouts)

    text = error_of(weighed)

    assert "importance_weights: the function refused: train log-probabilities" in text
    assert "\n  texts:3 (row 3), sample 1\n" in text


def test_a_session_tells_the_row_too(model_folder, tokenizer):
    tokenizer.save_pretrained(model_folder("llama"))
    score = lambda completions: NUMBERS[: len(completions)]
    with fl.session(rewards={"reward": score}, sampling=Sampling(max_tokens=6)) as eager:
        policy = eager.model("policy", model_folder("llama"))
        with pytest.raises(EngineError) as raised:
            advantages(policy, eager.prompts(["one", "a b", "why?"]))

    assert "  prompt 2 (row 2), sample 1\n" in str(raised.value)


def counted(total, mb):
    return total + ops.count(mb.mask).float(), {}


def test_a_group_over_the_tokens_of_a_microbatch_is_told_by_row(error_of):
    @fl.program
    def divided(policy: fl.Model, prompts: fl.Prompts):
        rollouts = ops.generate(policy, prompts, n=2)
        parts = ops.microbatches(rollouts, max_tokens=20)
        return {"tokens": ops.scan(counted, 0.0, parts)[0]}

    assert error_of(divided) == snapshot("""\
microbatches: group 2 has 32 tokens, more than max_tokens = 20
  texts:2 (row 2)
  test_origins.py:N
  .py:N         parts = ops.microbatches(rollouts, max_tokens=20)
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: raise `max_tokens`, or set `by="sequence"`\
""")


def test_a_sequence_over_the_tokens_of_a_microbatch_is_told_by_row(error_of):
    @fl.program
    def divided(policy: fl.Model, prompts: fl.Prompts):
        rollouts = ops.generate(policy, prompts, n=2)
        parts = ops.microbatches(rollouts, max_tokens=11, by="sequence")
        return {"tokens": ops.scan(counted, 0.0, parts)[0]}

    assert error_of(divided) == snapshot("""\
microbatches: sequence 4 has 16 tokens, more than max_tokens = 11
  texts:2 (row 2), sample 0
  test_origins.py:N
  .py:N         parts = ops.microbatches(rollouts, max_tokens=11, by="sequence")
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: raise `max_tokens`\
""")
