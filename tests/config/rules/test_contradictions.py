"""Keys that are fine alone and not together."""

import pytest
from inline_snapshot import snapshot


def test_a_warm_up_longer_than_the_run(error_of):
    assert error_of("[optimizer]\nwarmup_steps = 200\n") == snapshot("""\
`optimizer.warmup_steps` = 200 is more than `train.steps` = 100
  run.toml:21
   21 | warmup_steps = 200
        ^^^^^^^^^^^^
  run.toml:18
   18 | steps = 100
        ^^^^^\
""")


def test_a_role_that_starts_after_the_run(error_of):
    assert error_of("[optimizer.policy]\nstart_step = 100\n") == snapshot("""\
`optimizer.policy.start_step` = 100 leaves no step that updates: `train.steps` = 100
  run.toml:21
   21 | start_step = 100
        ^^^^^^^^^^
  run.toml:18
   18 | steps = 100
        ^^^^^\
""")


def test_a_key_that_the_schedule_does_not_read(error_of, load):
    assert error_of("[optimizer]\nschedule = 'linear'\nhold_fraction = 0.1\n") == snapshot("""\
`optimizer.hold_fraction` = 0.1 changes nothing: `optimizer.schedule` is "linear"
  run.toml:22
   22 | hold_fraction = 0.1
        ^^^^^^^^^^^^^
  run.toml:21
   21 | schedule = 'linear'
        ^^^^^^^^
help: leave it out, or choose "flat_then_linear"\
""")
    load("[optimizer]\nfinal_fraction = 0.1\n[optimizer.policy]\nschedule = 'linear'\n")
    load(
        "[optimizer]\nschedule='linear'\nfinal_fraction = 0.1\n[optimizer.policy]\nschedule='constant'"
    )


def test_more_tokens_at_least_than_at_most(error_of):
    assert error_of("[engines.policy.generate]\nmin_tokens = 300\n") == snapshot("""\
`engines.policy.generate.min_tokens` = 300 is more than `engines.policy.generate.max_tokens` = 256
  run.toml:21
   21 | min_tokens = 300
        ^^^^^^^^^^
  run.toml:20
   20 | [engines.policy.generate]
                        ^^^^^^^^\
""")


def test_a_role_that_has_no_model(error_of):
    assert error_of("[engines.polcy.generate]\ntop_k = 3\n") == snapshot("""\
`engines.polcy`: no role `polcy` (did you mean `policy`?)
  run.toml:20
   20 | [engines.polcy.generate]
                 ^^^^^
help: roles are policy, reference\
""")
    assert error_of("[optimizer.critic]\neps = 1e-6\n") == snapshot("""\
`optimizer.critic`: no role `critic`
  run.toml:20
   20 | [optimizer.critic]
                   ^^^^^^
help: roles are policy, reference\
""")
    assert error_of("[cluster.pools.a]\nroles = ['policy', 'referense']\n") == snapshot("""\
`cluster.pools.a.roles[1]`: no role `referense` (did you mean `reference`?)
  run.toml:21
   21 | roles = ['policy', 'referense']
        ^^^^^
help: roles are policy, reference, policy.generate, policy.train, reference.generate, reference.train, data, reward\
""")


def test_two_pools_that_claim_one_role(error_of, load):
    two = "[cluster.pools.a]\nroles = ['{}']\n[cluster.pools.b]\nroles = ['{}']\n"

    assert error_of(two.format("policy", "policy.train")) == snapshot("""\
pool `b` has `policy.train` and pool `a` has `policy`: the rule is one pool for a role
  run.toml:23
   23 | roles = ['policy.train']
        ^^^^^
  run.toml:21
   21 | roles = ['policy']
        ^^^^^
help: a role without a suffix holds both its `.generate` and its `.train`\
""")
    load(two.format("policy.generate", "policy.train"))


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


def test_values_out_of_range(error_of):
    added = """\
[engines.policy.generate]
top_p = 1.5
top_k = -1
temperature = -0.1
[optimizer]
betas = [0.9, 1.0]
"""

    assert error_of(added, "train.steps=0") == snapshot("""\
`train.steps` must be an integer of at least 1; got 0
  --set train.steps=0
also: `engines.policy.generate.top_p` must be a number above 0 and up to 1; got 1.5
  run.toml:21
   21 | top_p = 1.5
        ^^^^^
also: `engines.policy.generate.top_k` must be an integer of at least 0; got -1
  run.toml:22
   22 | top_k = -1
        ^^^^^
also: `engines.policy.generate.temperature` must be a number of at least 0; got -0.1
  run.toml:23
   23 | temperature = -0.1
        ^^^^^^^^^^^
also: `optimizer.betas[1]` must be a number from 0 to below 1; got 1.0
  run.toml:25
   25 | betas = [0.9, 1.0]
        ^^^^^\
""")


def test_of_several_rewards_an_evaluation_must_name_one(error_of):
    assert error_of("[eval]\n", "reward.other='reward.py:other'").startswith(
        "[eval] must say which reward to report: [reward] names exact, other\n"
    )


@pytest.mark.parametrize(
    "lengths",
    ["{mean = 50, max = 5}", "{mean = 5, max = 9, p99 = 4}", "{mean = '5'}", "[]", "[[1, 2], [3]]"],
)
def test_lengths_that_no_plan_could_take(error_of, lengths):
    text = error_of(f"[workload]\nresponse_tokens = {lengths}\n")

    assert text.startswith("`workload.response_tokens`: lengths need ")
    assert f"21 | response_tokens = {lengths}\n" in text


def test_gpus_of_a_ray_that_runs_already(error_of):
    assert error_of("[cluster]\naddress = 'head:6379'\nnum_gpus = 8\n") == snapshot("""\
`cluster.num_gpus` is for a Ray that flowrl starts; the one at `cluster.address` = "head:6379" knows its own
  run.toml:22
   22 | num_gpus = 8
        ^^^^^^^^
  run.toml:21
   21 | address = 'head:6379'
        ^^^^^^^
help: leave one of them out\
""")
