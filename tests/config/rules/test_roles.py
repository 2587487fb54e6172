"""Roles that a run file names, and its models."""

from inline_snapshot import snapshot


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
pool `b` has `policy.train` and pool `a` has `policy`: a role lives in one pool
  run.toml:23
   23 | roles = ['policy.train']
        ^^^^^
  run.toml:21
   21 | roles = ['policy']
        ^^^^^
help: a role without a suffix holds both its `.generate` and its `.train`\
""")
    load(two.format("policy.generate", "policy.train"))


def test_expectations_of_a_role_that_has_no_model(error_of):
    assert error_of("[workload.polcy]\nsequences = 3\n") == snapshot("""\
`workload.polcy`: no role `polcy` (did you mean `policy`?)
  run.toml:20
   20 | [workload.polcy]
                  ^^^^^
help: roles are policy, reference\
""")
