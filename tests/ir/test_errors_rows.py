"""Golden texts: fields, selections, joins, reductions and options of ops."""

from inline_snapshot import snapshot

from tests.ir.source import step_refusal


def test_a_token_reduction_without_a_mask():
    message = step_refusal("""
        return {'entropy': rollouts.logprobs.mean()}
    """)

    assert message == snapshot("""\
mean: a reduction of f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled} over its tokens needs a mask; got none
  example.py:7
    7 |     return {'entropy': rollouts.logprobs.mean()}
                               ^^^^^^^^^^^^^^^^^^^^^^^^
help: write `x.mean(mask=rollouts.mask)`\
""")


def test_a_token_reduction_inside_samples_without_a_mask():
    message = step_refusal("""
        return {'length': rollouts.logprobs.sum(over='token').mean()}
    """)

    assert message == snapshot("""\
sum: a reduction of f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled} over its tokens needs a mask; got none
  example.py:7
    7 |     return {'length': rollouts.logprobs.sum(over='token').mean()}
                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `x.sum(over='token', mask=rollouts.mask)`\
""")


def test_a_reduction_over_another_than_the_last_axis():
    message = step_refusal("""
        return {'x': rewards.mean(over='prompt').mean()}
    """)

    assert message == snapshot("""\
mean: can reduce f32[prompt'2, sample'2] over its last axis, or over all; got over='prompt'
  example.py:7
    7 |     return {'x': rewards.mean(over='prompt').mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce the inner axes first: `x.mean(over='sample').mean(...)`\
""")


def test_a_missing_record_field_names_the_nearest():
    message = step_refusal("""
        batch = ops.record(rollouts, advantages=-rewards)
        return {'x': batch.advantage.mean()}
    """)

    assert message == snapshot("""\
Record has no field `advantage` (did you mean `advantages`?); it has prompts, tokens, logprobs, mask, truncated, version, advantages
  example.py:8
    8 |     return {'x': batch.advantage.mean()}
                         ^^^^^^^^^^^^^^^
help: `ops.record(batch, advantage=value)` makes a record that has it\
""")


def test_a_missing_rollout_field_names_the_nearest():
    message = step_refusal("""
        return {'x': rollouts.logprob.mean()}
    """)

    assert message == snapshot("""\
Rollouts has no field `logprob` (did you mean `logprobs`?); it has prompts, tokens, logprobs, mask, truncated, version
  example.py:7
    7 |     return {'x': rollouts.logprob.mean()}
                         ^^^^^^^^^^^^^^^^
help: `ops.record(batch, logprob=value)` makes a record that has it\
""")


def test_a_record_field_on_other_rows():
    message = step_refusal("""
        batch = ops.record(ops.generate(policy, prompts), rewards=rewards)
        return {}
    """)

    assert message == snapshot("""\
record: field `rewards` must lie on the rows `prompt`; got f32[prompt'2, sample'2] (prompt by prompts at example.py:4; prompt'2 by score at example.py:6)
  example.py:7
    7 |     batch = ops.record(ops.generate(policy, prompts), rewards=rewards)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: join rows of another order with `ops.align(x, to=rollouts)`; one number for all rows needs no record\
""")


def test_a_record_field_that_is_a_number():
    message = step_refusal("""
        batch = ops.record(rollouts, weight=1.0)
        return {}
    """)

    assert message == snapshot("""\
record: field `weight` must lie on the rows `prompt'2`; got float
  example.py:7
    7 |     batch = ops.record(rollouts, weight=1.0)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: join rows of another order with `ops.align(x, to=rollouts)`; one number for all rows needs no record\
""")


def test_a_record_field_that_is_there():
    message = step_refusal("""
        batch = ops.record(rollouts, mask=rollouts.mask)
        return {}
    """)

    assert message == snapshot("""\
record: expected a new name; got `mask`, which is a field already
  example.py:7
    7 |     batch = ops.record(rollouts, mask=rollouts.mask)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: the fields are prompts, tokens, logprobs, mask, truncated, version: choose another name\
""")


def test_selecting_tokens():
    message = step_refusal("""
        kept = ops.select(rollouts, where=rollouts.mask)
        return {}
    """)

    assert message == snapshot("""\
select: `where` must choose prompts or samples; got bool[prompt'2, sample'2, token'2]
  example.py:7
    7 |     kept = ops.select(rollouts, where=rollouts.mask)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: tokens are left out by the mask, not by selection\
""")


def test_selecting_by_a_number():
    message = step_refusal("""
        kept = ops.select(rollouts, where=rewards)
        return {}
    """)

    assert message == snapshot("""\
select: `where` must be bool[prompt] or bool[prompt, sample]; got f32[prompt'2, sample'2]
  example.py:7
    7 |     kept = ops.select(rollouts, where=rewards)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: compare first: `ops.select(rollouts, where=rewards > 0)`\
""")


def test_selecting_by_a_condition_on_other_rows():
    message = step_refusal("""
        other = ops.generate(policy, prompts)
        kept = ops.select(other, where=rewards > 0)
        return {}
    """)

    assert message == snapshot("""\
select: i32[prompt, context] lies on other rows than bool[prompt'2, sample'2] (prompt by prompts at example.py:4; prompt'2 by score at example.py:6)
  example.py:8
    8 |     kept = ops.select(other, where=rewards > 0)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: choose among values of the same rows; `ops.align(x, to=rollouts)` joins others\
""")


def test_aligning_what_is_no_value():
    message = step_refusal("""
        baseline = ops.align(rollouts, to=rewards)
    """)

    assert message == snapshot("""\
align: `x` must be Value; got Rollouts
  example.py:7
    7 |     baseline = ops.align(rollouts, to=rewards)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: values come from ops and from the program's arguments, not from Python or torch\
""")


def test_aligning_to_what_has_no_rows():
    message = step_refusal("""
        baseline = ops.align(rewards, to=rewards)
    """)

    assert message == snapshot("""\
align: `to` must be Rollouts, Examples, Pairs, Record or Prompts; got f32[prompt'2, sample'2]
  example.py:7
    7 |     baseline = ops.align(rewards, to=rewards)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: rollouts come from `ops.generate`, data from arguments of the program\
""")


def test_selecting_by_what_python_knows():
    message = step_refusal("""
        rollouts = ops.select(rollouts, where=True)
    """)

    assert message == snapshot("""\
select: `where` must be Value; got bool
  example.py:7
    7 |     rollouts = ops.select(rollouts, where=True)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: values come from ops and from the program's arguments, not from Python or torch\
""")


def test_aligning_a_number():
    message = step_refusal("""
        baseline = ops.align(rewards.mean(), to=rollouts)
        return {}
    """)

    assert message == snapshot("""\
align: f32[] has no rows of the data to join by
  example.py:7
    7 |     baseline = ops.align(rewards.mean(), to=rollouts)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: its first axis must be the prompts of a rollout\
""")


def test_a_generate_option_out_of_range():
    message = step_refusal("""
        other = ops.generate(policy, prompts, top_p=1.5)
        return {}
    """)

    assert message == snapshot("""\
generate: `top_p` must be in (0, 1]; got 1.5
  example.py:7
    7 |     other = ops.generate(policy, prompts, top_p=1.5)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: 1 is off\
""")


def test_token_rewards_of_a_function():
    message = step_refusal("""
        rewards = ops.score('reward', rollouts, per='token')
        return {}
    """)

    assert message == snapshot("""\
score: `per` must be `sample`, or `token` for a model; got 'token'
  example.py:7
    7 |     rewards = ops.score('reward', rollouts, per='token')
                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: a reward function gives one number a completion\
""")


def test_a_reward_without_a_name():
    message = step_refusal("""
        rewards = ops.score(3, rollouts)
        return {}
    """)

    assert message == snapshot("""\
score: `by` must be the name of a reward, or a model; got int
  example.py:7
    7 |     rewards = ops.score(3, rollouts)
                      ^^^^^^^^^^^^^^^^^^^^^^
help: a reward function gets a name in the run file: `[reward.name]`\
""")


def test_half_a_sample():
    message = step_refusal("""
        other = ops.generate(policy, prompts, n=2.5)
        return {}
    """)

    assert message == snapshot("""\
generate: `n` must be an integer of at least 1; got 2.5
  example.py:7
    7 |     other = ops.generate(policy, prompts, n=2.5)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: n counts the samples of each prompt\
""")
