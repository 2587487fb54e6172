"""Golden texts: models are linear values, and a loss has a path to `new`."""

from inline_snapshot import snapshot

from tests.ir.source import step_refusal


def test_a_consumed_model_used_again_shows_both_lines():
    message = step_refusal("""
        newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
        anchor = ops.logprobs(policy, rollouts)
        return newer, stats
    """)

    assert message == snapshot("""\
logprobs: this version of `policy` is used up: an update has made the next version of it
  example.py:8
    8 |     anchor = ops.logprobs(policy, rollouts)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
it was used up here:
  example.py:7
    7 |     newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: use the model that the update returned, or keep a copy before with `ops.snapshot(model)`\
""")


def test_a_model_updated_and_not_returned():
    message = step_refusal("""
        newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
        return stats
    """)

    assert message == snapshot("""\
update makes a new version of `policy` that `step` doesn't return: the update would be lost
  example.py:7
    7 |     newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return the updated model; a model that isn't returned stays frozen\
""")


def test_the_old_version_returned_for_the_new_one():
    message = step_refusal("""
        newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update makes a new version of `policy` that `step` doesn't return: the update would be lost
  example.py:7
    7 |     newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return the updated model; a model that isn't returned stays frozen\
""")


def test_an_update_of_a_snapshot():
    message = step_refusal("""
        copy = ops.snapshot(policy)
        copy, stats = ops.update(copy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
        return stats
    """)

    assert message == snapshot("""\
update: needs a model that can be trained; got model<policy, snapshot>
  example.py:8
    8 |     copy, stats = ops.update(copy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     copy = ops.snapshot(policy)
                   ^^^^^^^^^^^^^^^^^^^^
help: update the model itself; a snapshot stays as it is\
""")


def test_a_snapshot_returned_for_a_model():
    message = step_refusal("""
        return ops.snapshot(policy), {}
    """)

    assert message == snapshot("""\
`step`: the next value of `policy` must be model<policy>; got model<policy, snapshot>
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that value was made here:
  example.py:7
    7 |     return ops.snapshot(policy), {}
                   ^^^^^^^^^^^^^^^^^^^^
help: return a model as `ops.update` made it, and carried values as numbers: `x.mean()`\
""")


def test_a_loss_that_reads_the_model_it_trains():
    message = step_refusal("""
        def loss(new):
            old = ops.logprobs(policy, rollouts)
            return ops.token_mean(new.logprobs - old, rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update: uses up this version of `policy` and reads it as well
  example.py:11
   11 |     policy, stats = ops.update(policy, loss, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: compute what you need of the model before, or read a copy: `ops.snapshot(model)`\
""")


def test_an_average_of_a_model_with_itself():
    message = step_refusal("""
        policy = ops.ema(policy, policy, decay=0.9)
        return policy, {}
    """)

    assert message == snapshot("""\
ema: uses up this version of `policy` and reads it as well
  example.py:7
    7 |     policy = ops.ema(policy, policy, decay=0.9)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: compute what you need of the model before, or read a copy: `ops.snapshot(model)`\
""")


def test_a_decay_out_of_range():
    message = step_refusal("""
        reference = ops.ema(reference, policy, decay=2.0)
        return policy, reference, {}
    """)

    assert message == snapshot("""\
ema: decay must be in [0, 1]; got 2.0
  example.py:7
    7 |     reference = ops.ema(reference, policy, decay=2.0)
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: 0.99 keeps 99% of the target\
""")


def test_a_loss_without_a_path_to_new():
    message = step_refusal("""
        policy, stats = ops.update(policy, lambda new: ops.token_mean(rollouts.logprobs, rollouts.mask), rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update: the loss has no gradient path to `new`: it would train nothing
  example.py:7
    7 |     policy, stats = ops.update(policy, lambda new: ops.token_mean(rollouts.logprobs, rollouts.mask), rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
the loss was made here:
  example.py:7
    7 |     policy, stats = ops.update(policy, lambda new: ops.token_mean(rollouts.logprobs, rollouts.mask), rollouts)
                                                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: use `new.logprobs`, `new.entropy`, `new.values` or `new.rewards`, not detached\
""")


def test_a_loss_that_detaches_new():
    message = step_refusal("""
        def loss(new):
            return ops.token_mean(new.logprobs.detach(), rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update: the loss has no gradient path to `new`: it would train nothing
  example.py:10
   10 |     policy, stats = ops.update(policy, loss, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
the loss was made here:
  example.py:8
    8 |         return ops.token_mean(new.logprobs.detach(), rollouts.mask)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: use `new.logprobs`, `new.entropy`, `new.values` or `new.rewards`, not detached\
""")


def test_a_loss_that_only_counts_new():
    message = step_refusal("""
        def loss(new):
            return ops.count(new.logprobs > -1.0)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update: the loss has no gradient path to `new`: it would train nothing
  example.py:10
   10 |     policy, stats = ops.update(policy, loss, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
the loss was made here:
  example.py:8
    8 |         return ops.count(new.logprobs > -1.0)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: use `new.logprobs`, `new.entropy`, `new.values` or `new.rewards`, not detached\
""")


def test_a_loss_that_is_not_reduced():
    message = step_refusal("""
        policy, stats = ops.update(policy, lambda new: -new.logprobs, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update: the loss must be f32[]; got f32[prompt'2, sample'2, token'2]
  example.py:7
    7 |     policy, stats = ops.update(policy, lambda new: -new.logprobs, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that value was made here:
  example.py:7
    7 |     policy, stats = ops.update(policy, lambda new: -new.logprobs, rollouts)
                                                           ^^^^^^^^^^^^^
help: reduce it: `ops.token_mean(x, rollouts.mask)`, or `x.mean()` of samples\
""")


def test_a_loss_that_returns_nothing():
    message = step_refusal("""
        policy, stats = ops.update(policy, lambda new: None, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update: the loss must be f32[]; got NoneType
  example.py:7
    7 |     policy, stats = ops.update(policy, lambda new: None, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce it: `ops.token_mean(x, rollouts.mask)`, or `x.mean()` of samples\
""")


def test_a_metric_of_a_loss_that_is_not_reduced():
    message = step_refusal("""
        def loss(new):
            return ops.token_mean(-new.logprobs, rollouts.mask), {"entropy": new.entropy}

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
update: metric `entropy` must be f32[]; got f32[prompt'2, sample'2, token'2]
  example.py:10
   10 |     policy, stats = ops.update(policy, loss, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce it: `ops.token_mean(x, rollouts.mask)`, or `x.mean()` of samples\
""")


def test_an_unknown_output_of_the_model():
    message = step_refusal("""
        policy, stats = ops.update(policy, lambda new: new.logits, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
the model has no output `logits` (did you mean `logprobs`?); a loss reads `new.logprobs`, `new.entropy`, `new.values`, `new.rewards`, `new.token_rewards`
  example.py:7
    7 |     policy, stats = ops.update(policy, lambda new: new.logits, rollouts)
                                                           ^^^^^^^^^^
help: anything else of a model is computed before the update: `ops.logprobs(model, rollouts)`\
""")


def test_an_update_of_no_model():
    message = step_refusal("""
        rewards, stats = ops.update(rewards, lambda new: new.logprobs, rollouts)
        return stats
    """)

    assert message == snapshot("""\
update: `model` must be Model; got f32[prompt'2, sample'2]
  example.py:7
    7 |     rewards, stats = ops.update(rewards, lambda new: new.logprobs, rollouts)
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: models are the `fl.Model` arguments of the program, and what `ops.update` returns\
""")
