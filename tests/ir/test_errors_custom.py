"""Golden texts: ops of users."""

from inline_snapshot import snapshot

from tests.ir.source import refusal


def test_a_user_op_given_a_wrong_type():
    message = refusal("""
        @fl.op("f32[..., sample] -> f32[..., sample]", per="group")
        def centred(rewards):
            return rewards - rewards.mean()

        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts = ops.generate(policy, prompts)
            return {"x": centred(rollouts.truncated).mean()}
    """)

    assert message == snapshot("""\
centred: `rewards` must be f32[..., sample]; got bool[prompt, sample]
  example.py:10
   10 |     return {"x": centred(rollouts.truncated).mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:9
    9 |     rollouts = ops.generate(policy, prompts)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: make it a number: `x.float()`\
""")


def test_a_user_op_given_too_many_values():
    message = refusal("""
        @fl.op("f32[..., sample] -> f32[..., sample]", per="group")
        def centred(rewards, *, scale=1.0):
            return rewards - rewards.mean()

        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
            return {"x": centred(rewards, 2.0).mean()}
    """)

    assert message == snapshot("""\
centred: takes 1 values, f32[..., sample] -> f32[..., sample]; got 2
  example.py:10
   10 |     return {"x": centred(rewards, 2.0).mean()}
                         ^^^^^^^^^^^^^^^^^^^^^
help: give rewards; options are given by keyword\
""")


def test_a_user_op_without_an_arrow():
    message = refusal("""
        @fl.op("f32[..., sample]", per="group")
        def centred(rewards):
            return rewards
    """)

    assert message == snapshot("""\
@fl.op of `centred`: expected `type, type -> type`; got 'f32[..., sample]'
  example.py:4
    4 | def centred(rewards):
        ^^^^^^^^^^^^^^^^^^^^^
help: write types as `"f32[..., token], bool[..., token] -> f32[...]"` and `per` as token, sample, group or batch\
""")


def test_a_user_op_of_an_unknown_dtype():
    message = refusal("""
        @fl.op("f64[..., sample] -> f32[..., sample]", per="group")
        def centred(rewards):
            return rewards
    """)

    assert message == snapshot("""\
@fl.op of `centred`: expected types such as `f32[prompt, sample]`, of any, number, f32, i32, bool, row; got 'f64[..., sample]'
  example.py:4
    4 | def centred(rewards):
        ^^^^^^^^^^^^^^^^^^^^^
help: write types as `"f32[..., token], bool[..., token] -> f32[...]"` and `per` as token, sample, group or batch\
""")


def test_a_user_op_with_words_between_its_types():
    message = refusal("""
        @fl.op("f32[sample] and f32[sample] -> f32[sample]", per="group")
        def centred(rewards):
            return rewards
    """)

    assert message == snapshot("""\
@fl.op of `centred`: expected types such as `f32[prompt, sample]`, of any, number, f32, i32, bool, row; got 'f32[sample] and f32[sample]'
  example.py:4
    4 | def centred(rewards):
        ^^^^^^^^^^^^^^^^^^^^^
help: write types as `"f32[..., token], bool[..., token] -> f32[...]"` and `per` as token, sample, group or batch\
""")


def test_a_user_op_whose_result_has_an_axis_of_no_argument():
    message = refusal("""
        @fl.op("f32[prompt] -> f32[prompt, sample]", per="group")
        def centred(rewards):
            return rewards
    """)

    assert message == snapshot("""\
@fl.op of `centred`: the result f32[prompt, sample] has `sample`, which no argument has
  example.py:4
    4 | def centred(rewards):
        ^^^^^^^^^^^^^^^^^^^^^
help: write types as `"f32[..., token], bool[..., token] -> f32[...]"` and `per` as token, sample, group or batch\
""")


def test_a_user_op_of_an_unknown_unit():
    message = refusal("""
        @fl.op("f32[..., sample] -> f32[..., sample]", per="row")
        def centred(rewards):
            return rewards
    """)

    assert message == snapshot("""\
@fl.op of `centred`: expected a unit, token, sample, group, batch; got 'row'
  example.py:4
    4 | def centred(rewards):
        ^^^^^^^^^^^^^^^^^^^^^
help: write types as `"f32[..., token], bool[..., token] -> f32[...]"` and `per` as token, sample, group or batch\
""")


def test_a_user_op_of_another_number_of_arguments():
    message = refusal("""
        @fl.op("f32[..., sample], bool[..., sample] -> f32[..., sample]", per="group")
        def centred(rewards):
            return rewards
    """)

    assert message == snapshot("""\
@fl.op of `centred`: the signature has 2 arguments, the function 1 (rewards)
  example.py:4
    4 | def centred(rewards):
        ^^^^^^^^^^^^^^^^^^^^^
help: give one type for each positional argument; options come after `*`\
""")


def test_a_user_op_given_a_misspelt_option():
    message = refusal("""
        @fl.op("f32[..., sample] -> f32[..., sample]", per="group")
        def scaled(rewards, *, scale=1.0, shift=0.0, groups=None):
            return rewards * scale + shift

        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
            return {"x": scaled(rewards, scael=2.0).mean()}
    """)

    assert message == snapshot("""\
scaled: has no option `scael` (did you mean `scale`?); it has scale, shift
  example.py:10
   10 |     return {"x": scaled(rewards, scael=2.0).mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^
help: options are what the function takes after `*`\
""")


def test_a_user_op_given_an_option_that_the_runtime_supplies():
    message = refusal("""
        @fl.op("f32[..., sample] -> f32[..., sample]", per="group")
        def centred(rewards, *, groups=None):
            return rewards

        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
            return {"x": centred(rewards, groups=3).mean()}
    """)

    assert message == snapshot("""\
centred: has no option `groups`; it has none
  example.py:10
   10 |     return {"x": centred(rewards, groups=3).mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^
help: options are what the function takes after `*`\
""")


def test_a_user_op_given_a_value_as_an_option():
    message = refusal("""
        @fl.op("f32[..., sample] -> f32[..., sample]", per="group")
        def scaled(rewards, *, scale=1.0):
            return rewards * scale

        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
            return {"x": scaled(rewards, scale=[1.0, rewards.mean()]).mean()}
    """)

    assert message == snapshot("""\
scaled: option `scale` must be known while tracing; got f32[]
  example.py:10
   10 |     return {"x": scaled(rewards, scale=[1.0, rewards.mean()]).mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: options are constants; give it as an argument, with a type in the signature\
""")


def test_a_user_op_whose_dots_stand_for_other_axes():
    message = refusal("""
        @fl.op("f32[..., token], f32[..., sample] -> f32[..., token]", per="batch")
        def spread(logprobs, rewards):
            return logprobs

        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
            return {"x": spread(rollouts.logprobs, rewards).mean(mask=rollouts.mask)}
    """)

    assert message == snapshot("""\
spread: `rewards` must be f32[..., sample], where `...` is prompt'2, sample'2; got f32[prompt'2, sample'2]
  example.py:10
   10 |     return {"x": spread(rollouts.logprobs, rewards).mean(mask=rollouts.mask)}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:9
    9 |     rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: its axes must be these, in this order\
""")
