"""A run file and its program."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.checks.program import batches, check_heads, check_rewards
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from tests.config.conftest import GRPO


def test_groups_that_minibatches_do_not_divide_are_counted_as_the_program_counts_them(load):
    dapo = GRPO.replace('file = "grpo"\nsamples = 4', 'file = "dapo"\nsamples = 2\ngroups = 3')
    run = load("", "program.minibatch=4", text=dapo)

    with pytest.raises(RunFileError) as error:
        batches(run, trace_run(run).graph)

    assert str(error.value) == snapshot("""\
6 responses a step (`groups` = 3 x samples = 2) don't split into minibatches of 4: remainder 2
  dapo.py:20
   20 |     (rollouts, rewards), surplus, drawn = ops.sample_until(
                                                  ^^^^^^^^^^^^^^^^^
help: a minibatch of 2 fits\
""")


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
        "the program scores by `reward`, but [reward] has `exact`, `rewards` (did you mean `rewards`?)"
    )
