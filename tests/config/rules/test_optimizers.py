"""Settings of optimizers that are fine alone and not together."""

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
