"""Golden texts: scans, conditions and draws."""

from inline_snapshot import snapshot

from tests.ir.source import step_refusal


def test_an_outer_value_under_a_scan_over_its_axis():
    message = step_refusal("""
        def body(policy, mb):
            def loss(new):
                return ops.token_mean(new.logprobs * rewards, mb.mask)

            return ops.update(policy, loss, mb)

        policy, stats = ops.scan(body, policy, ops.minibatches(rollouts, sequences=8))
        return policy, stats
    """)

    assert message == snapshot("""\
mul: f32[prompt'2, sample'2] is used inside `body`, which sees its axis `prompt'2` only in parts
  example.py:9
    9 |             return ops.token_mean(new.logprobs * rewards, mb.mask)
                                          ^^^^^^^^^^^^^^^^^^^^^^
that value was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: put it in the record: `ops.record(batch, name=value)`, and read `mb.name`\
""")


def test_a_model_updated_in_a_body_that_does_not_carry_it():
    message = step_refusal("""
        def body(total, mb):
            newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, mb.mask), mb)
            return total, stats

        total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
        return stats
    """)

    assert message == snapshot("""\
update: `policy` is updated inside `body` but comes from outside of it
  example.py:8
    8 |         newer, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, mb.mask), mb)
                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: hand the model in: `ops.scan(body, (model, ...), minibatches)` or `ops.cond(predicate, then, orelse, model)`\
""")


def test_a_body_that_changes_its_carry():
    message = step_refusal("""
        def body(total, mb):
            return mb.logprobs, {}

        total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
        return stats
    """)

    assert message == snapshot("""\
scan: `body` must return a carry as it got it, (f32[]); got (f32[prompt'3, sample'3, token'3]{policy.0 T=1 sampled})
  example.py:10
   10 |     total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return the next version of every model and value of the carry, in the same places\
""")


def test_a_body_that_returns_an_outer_model_for_its_carry():
    message = step_refusal("""
        def body(policy_, mb):
            return reference, {}

        policy, stats = ops.scan(body, policy, ops.minibatches(rollouts, sequences=8))
        return policy, stats
    """)

    assert message == snapshot("""\
scan: `body` must return a carry as it got it, (model<policy>); got (model<reference>)
  example.py:10
   10 |     policy, stats = ops.scan(body, policy, ops.minibatches(rollouts, sequences=8))
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return the next version of every model and value of the carry, in the same places\
""")


def test_a_body_that_returns_no_statistics():
    message = step_refusal("""
        def body(total, mb):
            return total

        total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
        return stats
    """)

    assert message == snapshot("""\
scan: `body` must return (carry, statistics); got f32[]
  example.py:10
   10 |     total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `return (policy, critic), {'loss': loss}`; the statistics may be an empty dict\
""")


def test_a_statistic_that_is_not_reduced():
    message = step_refusal("""
        def body(total, mb):
            return total, {"logprob": mb.logprobs}

        total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
        return stats
    """)

    assert message == snapshot("""\
scan: statistic `logprob` must be f32[]; got f32[prompt'3, sample'3, token'3]{policy.0 T=1 sampled}
  example.py:10
   10 |     total, stats = ops.scan(body, rewards.mean(), ops.minibatches(rollouts, sequences=8))
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce it: `ops.token_mean(x, mb.mask)`, or `x.mean()` of samples\
""")


def test_a_scan_over_a_record():
    message = step_refusal("""
        total, stats = ops.scan(lambda total, mb: (total, {}), rewards.mean(), rollouts)
        return stats
    """)

    assert message == snapshot("""\
scan: `xs` must be Batches; got Rollouts
  example.py:7
    7 |     total, stats = ops.scan(lambda total, mb: (total, {}), rewards.mean(), rollouts)
                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: divide a record first: `ops.minibatches(batch, sequences=64)`\
""")


def test_no_sequences_a_minibatch():
    message = step_refusal("""
        batches = ops.minibatches(rollouts, sequences=0)
        return {}
    """)

    assert message == snapshot("""\
minibatches: `sequences` must be an integer of at least 1; got 0
  example.py:7
    7 |     batches = ops.minibatches(rollouts, sequences=0)
                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: sequences counts samples, not prompts\
""")


def test_half_an_epoch():
    message = step_refusal("""
        batches = ops.minibatches(rollouts, sequences=8, epochs=0.5)
        return {}
    """)

    assert message == snapshot("""\
minibatches: `epochs` must be an integer of at least 1; got 0.5
  example.py:7
    7 |     batches = ops.minibatches(rollouts, sequences=8, epochs=0.5)
                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: epochs says how often each row is seen\
""")


def test_minibatches_by_something_else():
    message = step_refusal("""
        batches = ops.minibatches(rollouts, sequences=8, by='token')
        return {}
    """)

    assert message == snapshot("""\
minibatches: `by` must be 'group' or 'sequence'; got 'token'
  example.py:7
    7 |     batches = ops.minibatches(rollouts, sequences=8, by='token')
                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: leave `by` out for 'group'\
""")


def test_branches_of_different_types():
    message = step_refusal("""
        x = ops.cond(rewards.mean() > 0.5, lambda: rewards, lambda: rewards.mean())
        return {}
    """)

    assert message == snapshot("""\
cond: both sides must return the same types; got (f32[prompt'2, sample'2]) and (f32[])
  example.py:7
    7 |     x = ops.cond(rewards.mean() > 0.5, lambda: rewards, lambda: rewards.mean())
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return the same structure from both, a model as it came if nothing happens\
""")


def test_branches_of_different_structure():
    message = step_refusal("""
        x = ops.cond(rewards.mean() > 0.5, lambda: (rewards, rewards), lambda: rewards)
        return {}
    """)

    assert message == snapshot("""\
cond: both sides must return the same types; got (f32[prompt'2, sample'2], f32[prompt'2, sample'2]) and (f32[prompt'2, sample'2])
  example.py:7
    7 |     x = ops.cond(rewards.mean() > 0.5, lambda: (rewards, rewards), lambda: rewards)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return the same structure from both, a model as it came if nothing happens\
""")


def test_a_predicate_for_each_sample():
    message = step_refusal("""
        x = ops.cond(rewards > 0.5, lambda: rewards, lambda: -rewards)
        return {}
    """)

    assert message == snapshot("""\
cond: `predicate` must be bool[]; got bool[prompt'2, sample'2]
  example.py:7
    7 |     x = ops.cond(rewards > 0.5, lambda: rewards, lambda: -rewards)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     x = ops.cond(rewards > 0.5, lambda: rewards, lambda: -rewards)
                         ^^^^^^^^^^^^^
help: reduce first: `(rewards.mean() > 0.5)`; per element use `ops.where`\
""")


def test_a_model_updated_in_a_branch_that_is_not_handed_it():
    message = step_refusal("""
        def train():
            return ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)[0]

        policy = ops.cond(rewards.mean() > 0.5, train, lambda: policy)
        return policy, {}
    """)

    assert message == snapshot("""\
update: `policy` is updated inside `then` but comes from outside of it
  example.py:8
    8 |         return ops.update(policy, lambda new: ops.token_mean(-new.logprobs, rollouts.mask), rollouts)[0]
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: hand the model in: `ops.scan(body, (model, ...), minibatches)` or `ops.cond(predicate, then, orelse, model)`\
""")


def test_branches_that_return_an_outer_model():
    message = step_refusal("""
        same = ops.cond(rewards.mean() > 0.5, lambda: policy, lambda: policy)
        return policy, {}
    """)

    assert message == snapshot("""\
`then` returns `policy`, which comes from outside of it
  example.py:7
    7 |     same = ops.cond(rewards.mean() > 0.5, lambda: policy, lambda: policy)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: hand the model in: `ops.scan(body, (model, ...), minibatches)` or `ops.cond(predicate, then, orelse, model)`\
""")


def test_a_value_that_escapes_from_a_loss():
    message = step_refusal("""
        kept = []

        def loss(new):
            kept.append(new.entropy)
            return ops.token_mean(-new.logprobs, rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, {"entropy": ops.token_mean(kept[0], rollouts.mask)}
    """)

    assert message == snapshot("""\
token_mean: expected a value of this program; got f32[prompt'2, sample'2, token'2] of another program, or from inside a loss or a scan's body
  example.py:14
   14 |     return policy, {"entropy": ops.token_mean(kept[0], rollouts.mask)}
                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: hand it in as an argument, or out as a result: a value lives only in the function that makes it and in those inside\
""")


def test_no_groups_to_draw():
    message = step_refusal("""
        batch, surplus, drawn = ops.sample_until(
            lambda some: ops.generate(policy, some, n=4), lambda made: made.truncated, prompts, groups=0, rounds=4
        )
        return {}
    """)

    assert message == snapshot("""\
sample_until: `groups` must be an integer of at least 1; got 0
  example.py:7
    7 |     batch, surplus, drawn = ops.sample_until(
                                    ^^^^^^^^^^^^^^^^^
help: groups counts prompts\
""")


def test_a_shortfall_of_another_kind():
    message = step_refusal("""
        batch, surplus, drawn = ops.sample_until(
            lambda some: ops.generate(policy, some, n=4),
            lambda made: made.truncated,
            prompts,
            groups=4,
            rounds=4,
            shortfall="ignore",
        )
        return {}
    """)

    assert message == snapshot("""\
sample_until: `shortfall` must be 'error' or 'accept'; got 'ignore'
  example.py:7
    7 |     batch, surplus, drawn = ops.sample_until(
                                    ^^^^^^^^^^^^^^^^^
help: leave `shortfall` out for 'error'\
""")


def test_keeping_samples_rather_than_groups():
    message = step_refusal("""
        batch, surplus, drawn = ops.sample_until(
            lambda some: ops.generate(policy, some, n=4), lambda made: made.truncated, prompts, groups=4, rounds=4
        )
        return {}
    """)

    assert message == snapshot("""\
sample_until: `keep` must return bool[prompt]; got bool[prompt'3, sample'3]
  example.py:7
    7 |     batch, surplus, drawn = ops.sample_until(
                                    ^^^^^^^^^^^^^^^^^
that value was made here:
  example.py:8
    8 |         lambda some: ops.generate(policy, some, n=4), lambda made: made.truncated, prompts, groups=4, rounds=4
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce over samples: `ops.has_signal(rewards)`\
""")


def test_drawing_from_the_outer_prompts():
    message = step_refusal("""
        batch, surplus, drawn = ops.sample_until(
            lambda some: ops.generate(policy, prompts, n=4), lambda made: made.truncated, prompts, groups=4, rounds=4
        )
        return {}
    """)

    assert message == snapshot("""\
generate: i32[prompt, context] is used inside `draw`, which sees its axis `prompt` only in parts
  example.py:8
    8 |         lambda some: ops.generate(policy, prompts, n=4), lambda made: made.truncated, prompts, groups=4, rounds=4
                             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: use the prompts that `draw` gets: each round has its own\
""")
