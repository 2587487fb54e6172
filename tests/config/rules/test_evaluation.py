"""What an evaluation samples and reports by."""

from inline_snapshot import snapshot


def test_pass_at_more_than_the_samples(error_of):
    assert error_of("[eval]\nsamples = 4\npass_at = [1, 8]\n") == snapshot("""\
`eval.pass_at[1]` = 8 is more than `eval.samples` = 4
  run.toml:22
   22 | pass_at = [1, 8]
        ^^^^^^^
  run.toml:21
   21 | samples = 4
        ^^^^^^^\
""")


def test_greedy_samples_that_would_be_equal(error_of):
    assert error_of("[eval]\nsamples = 4\ntemperature = 0\n") == snapshot("""\
`eval.temperature` = 0 is greedy: all `eval.samples` = 4 would be equal
  run.toml:22
   22 | temperature = 0
        ^^^^^^^^^^^
  run.toml:21
   21 | samples = 4
        ^^^^^^^
help: `eval.greedy = true` reports the greedy completion beside the samples\
""")


def test_evaluation_by_a_reward_that_does_not_exist(error_of):
    assert error_of("[eval]\nreward = 'exat'\n") == snapshot("""\
`eval.reward`: no reward `exat` (did you mean `exact`?)
  run.toml:21
   21 | reward = 'exat'
        ^^^^^^
  run.toml:14
   14 | [reward]
         ^^^^^^
help: [reward] names exact\
""")


def test_of_several_rewards_an_evaluation_must_name_one(error_of):
    assert error_of("[eval]\n", "reward.other='reward.py:other'").startswith(
        "[eval] must say which reward to report: [reward] names exact, other\n"
    )
