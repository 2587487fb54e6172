"""Golden texts: what a program takes and returns, and ops of users."""

from inline_snapshot import snapshot

from tests.ir.source import refusal, step_refusal


def test_an_argument_without_annotation():
    message = refusal("""
        @fl.program
        def step(policy, prompts: fl.Prompts):
            return {}
    """)

    assert message == snapshot("""\
`step`: argument `policy` must be annotated `fl.Model`, `fl.Prompts`, `fl.Examples`, `fl.Pairs` or `fl.Carry`; got none
  example.py:4
    4 | def step(policy, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: positional arguments flow through the graph; hyperparameters come after `*`\
""")


def test_an_argument_of_another_annotation():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, clip: float):
            return {}
    """)

    assert message == snapshot("""\
`step`: argument `clip` must be annotated `fl.Model`, `fl.Prompts`, `fl.Examples`, `fl.Pairs` or `fl.Carry`; got float
  example.py:4
    4 | def step(policy: fl.Model, clip: float):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: positional arguments flow through the graph; hyperparameters come after `*`\
""")


def test_arguments_without_names():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, *prompts: fl.Prompts):
            return {}
    """)

    assert message == snapshot("""\
`step`: `*prompts` isn't allowed: inputs are known by name
  example.py:4
    4 | def step(policy: fl.Model, *prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: positional arguments flow through the graph; hyperparameters come after `*`\
""")


def test_an_annotation_that_cannot_be_resolved():
    message = refusal("""
        @fl.program
        def step(policy: 'fl.Policy', prompts: fl.Prompts):
            return {}
    """)

    assert message == snapshot("""\
`step`: an annotation cannot be resolved: module 'flowrl' has no attribute 'Policy'
  example.py:4
    4 | def step(policy: 'fl.Policy', prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: positional arguments flow through the graph; hyperparameters come after `*`\
""")


def test_an_unknown_hyperparameter():
    message = refusal(
        """
        @fl.program
        def step(policy: fl.Model, *, clip=0.2, samples=8):
            return {}
    """,
        sample=4,
    )

    assert message == snapshot("""\
`step` has no hyperparameter `sample` (did you mean `samples`?); it has clip, samples
  example.py:4
    4 | def step(policy: fl.Model, *, clip=0.2, samples=8):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: hyperparameters are the keyword-only arguments of the program\
""")


def test_a_hyperparameter_without_a_value():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, *, clip):
            return {}
    """)

    assert message == snapshot("""\
`step` needs a value of `clip`
  example.py:4
    4 | def step(policy: fl.Model, *, clip):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: give it a default, or set it: `[program] clip = ...`\
""")


def test_a_value_returned_for_a_model():
    message = step_refusal("""
        return rewards, {}
    """)

    assert message == snapshot("""\
`step`: returns f32[prompt'2, sample'2] where none is expected: models and carried values are returned in the order of the arguments (`policy`, `reference`), then a dict of metrics
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `return policy, {'reward': rewards.mean()}`\
""")


def test_models_returned_in_another_order():
    message = step_refusal("""
        return reference, policy, {}
    """)

    assert message == snapshot("""\
`step`: returns `policy` where none is expected: models and carried values are returned in the order of the arguments (`policy`, `reference`), then a dict of metrics
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `return policy, {'reward': rewards.mean()}`\
""")


def test_a_model_returned_twice():
    message = step_refusal("""
        return policy, policy, {}
    """)

    assert message == snapshot("""\
`step`: returns `policy` where none is expected: models and carried values are returned in the order of the arguments (`policy`, `reference`), then a dict of metrics
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `return policy, {'reward': rewards.mean()}`\
""")


def test_nothing_returned():
    message = step_refusal("""
        pass
    """)

    assert message == snapshot("""\
`step`: returns NoneType where none is expected: models and carried values are returned in the order of the arguments (`policy`, `reference`), then a dict of metrics
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `return policy, {'reward': rewards.mean()}`\
""")


def test_a_metric_that_is_not_a_scalar():
    message = step_refusal("""
        return policy, {'reward': rewards}
    """)

    assert message == snapshot("""\
`step`: metric `reward` must be f32[]; got f32[prompt'2, sample'2]
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that value was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce it: `x.mean()`, or `ops.token_mean(x, rollouts.mask)`\
""")


def test_a_metric_that_is_nothing():
    message = step_refusal("""
        return policy, {'reward': None}
    """)

    assert message == snapshot("""\
`step`: metric `reward` must be f32[]; got NoneType
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce it: `x.mean()`, or `ops.token_mean(x, rollouts.mask)`\
""")


def test_a_value_of_another_program():
    message = refusal("""
        kept = []

        @fl.program
        def first(policy: fl.Model, prompts: fl.Prompts):
            kept.append(ops.generate(policy, prompts))
            return {}

        first.trace()

        @fl.program
        def second(policy: fl.Model, prompts: fl.Prompts):
            return {"length": ops.count(kept[0].mask)}
    """)

    assert message == snapshot("""\
float: expected a value of this program; got bool[prompt, sample, token] of another program, or from inside a loss or a scan's body
  example.py:14
   14 |     return {"length": ops.count(kept[0].mask)}
                              ^^^^^^^^^^^^^^^^^^^^^^^
help: hand it in as an argument, or out as a result: a value lives only in the function that makes it and in those inside\
""")


def test_an_op_outside_of_a_program():
    message = refusal("""
        ops.maximum(1.0, 2.0)
    """)

    assert message == snapshot("""\
maximum is called outside of a program
  example.py:3
    3 | ops.maximum(1.0, 2.0)
        ^^^^^^^^^^^^^^^^^^^^^
help: call it in a function decorated with `@fl.program`, or on concrete values of a `fl.session(...)`\
""")


def test_a_carry_without_a_first_value():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, baseline: fl.Carry):
            return {}
    """)

    assert message == snapshot("""\
`step`: `baseline: fl.Carry` needs a first value
  example.py:4
    4 | def step(policy: fl.Model, baseline: fl.Carry):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `baseline: fl.Carry = fl.Carry(0.0)`\
""")


def test_a_carry_of_text():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, baseline: fl.Carry = fl.Carry('zero')):
            return {}
    """)

    assert message == snapshot("""\
fl.Carry: a first value must be a number; got str
  example.py:4
    4 | def step(policy: fl.Model, baseline: fl.Carry = fl.Carry('zero')):
                                                        ^^^^^^^^^^^^^^^^
help: `fl.Carry(0.0)`, numbers in tuples, lists and dicts, or `fl.Carry(fl.Buffer())`\
""")


def test_a_carry_that_is_not_returned():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, baseline: fl.Carry = fl.Carry(0.0)):
            return policy, {}
    """)

    assert message == snapshot("""\
`step`: the next value of `baseline` is never returned
  example.py:4
    4 | def step(policy: fl.Model, baseline: fl.Carry = fl.Carry(0.0)):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return it in the place of the argument: `return policy, baseline, metrics`\
""")


def test_a_carry_that_changes_its_type():
    message = refusal("""
        @fl.program
        def step(prompts: fl.Prompts, baseline: fl.Carry = fl.Carry(0.0)):
            return baseline + prompts.context.float(), {}
    """)

    assert message == snapshot("""\
`step`: the next value of `baseline` must be f32[]; got f32[prompt, context]
  example.py:4
    4 | def step(prompts: fl.Prompts, baseline: fl.Carry = fl.Carry(0.0)):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that value was made here:
  example.py:5
    5 |     return baseline + prompts.context.float(), {}
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return a model as `ops.update` made it, and carried values as numbers: `x.mean()`\
""")
