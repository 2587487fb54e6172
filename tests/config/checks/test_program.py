"""A run file and its program."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.checks.program import check_heads, check_rewards
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError


def test_a_head_that_the_program_cannot_read_is_refused(load):
    run = load("", "models.policy.head=value")

    with pytest.raises(RunFileError) as error:
        check_heads(run, trace_run(run).graph)

    assert str(error.value) == snapshot("""\
the program needs "lm" or "lm+value" as the head of `policy`; got "value"
  --set models.policy.head=value
help: leave it out: it follows from what the program reads\
""")


def test_a_reward_that_is_bound_by_almost_its_name(load):
    run = load("", "reward.rewards=reward.py:exact")

    with pytest.raises(RunFileError) as error:
        check_rewards(run, trace_run(run).graph)

    assert error.value.problem == snapshot(
        "the program scores by `reward`, but [reward] has `exact`, `rewards`"
    )


def test_all_rewards_that_are_not_bound_are_named_at_once(load):
    run = load("", "program.file=gdpo")

    with pytest.raises(RunFileError) as error:
        check_rewards(run, trace_run(run).graph)

    assert (error.value.problem, error.value.hint) == snapshot(
        (
            "the program scores by `correct` and `format`, but [reward] has `exact`",
            'bind them in [reward]: `correct = "path.py:function"` and `format = "path.py:function"`',
        )
    )
