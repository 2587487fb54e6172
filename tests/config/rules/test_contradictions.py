"""Keys that are fine alone and not together."""

from inline_snapshot import snapshot


def test_contradictions_of_all_tables_come_at_once(error_of):
    added = """\
[engines.policy.generate]
stop = [""]
[optimizer]
warmup_steps = 200
[cluster.pools.main]
gpus = 2
[eval]
reward = "exat"
"""

    assert error_of(added) == snapshot("""\
`engines.policy.generate.stop` must be strings that are not empty; got [""]
  run.toml:21
   21 | stop = [""]
        ^^^^
also: `optimizer.warmup_steps` = 200 is more than `train.steps` = 100
  run.toml:23
   23 | warmup_steps = 200
        ^^^^^^^^^^^^
also: pool `main` has 2 GPUs for 1 worker; a worker uses one GPU
  run.toml:25
   25 | gpus = 2
        ^^^^
also: `eval.reward`: no reward `exat` (did you mean `exact`?)
  run.toml:27
   27 | reward = "exat"
        ^^^^^^
help: leave the empty one out\
""")
