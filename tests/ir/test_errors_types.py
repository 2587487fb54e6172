"""Golden texts: values of wrong types, on other axes, or no values at all."""

from inline_snapshot import snapshot

from tests.ir.source import step_refusal


def test_axes_of_other_rows_name_both_makers():
    message = step_refusal("""
        return {'x': (rewards + prompts.context.float()).mean()}
    """)

    assert message == snapshot("""\
add: `b` must be f32[prompt'2, sample'2], or the first axes of that; got f32[prompt, context] (prompt'2 by score at example.py:6; prompt by prompts at example.py:4)
  example.py:7
    7 |     return {'x': (rewards + prompts.context.float()).mean()}
                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     return {'x': (rewards + prompts.context.float()).mean()}
                                    ^^^^^^^^^^^^^^^^^^^^^^^
help: use values that came out of the same op (`ops.score` and `ops.select` return the rows again, less the dropped ones), or join them by row with `ops.align(x, to=rollouts)`\
""")


def test_axes_of_one_name_by_other_makers_do_not_line_up():
    message = step_refusal("""
        other = ops.generate(policy, prompts, n=4)
        gap = rollouts.logprobs - other.logprobs
        return {"gap": ops.token_mean(gap, rollouts.mask)}
    """)

    assert message == snapshot("""\
sub: `b` must be f32[prompt'2, sample'2, token'2], or the first axes of that; got f32[prompt, sample'3, token'3]{policy.0 T=1 sampled} (prompt'2 by score at example.py:6; prompt by prompts at example.py:4)
  example.py:8
    8 |     gap = rollouts.logprobs - other.logprobs
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     other = ops.generate(policy, prompts, n=4)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: use values that came out of the same op (`ops.score` and `ops.select` return the rows again, less the dropped ones), or join them by row with `ops.align(x, to=rollouts)`\
""")


def test_a_value_of_too_many_axes_says_how_to_reduce_it():
    message = step_refusal("""
        advantages = ops.group_advantage(rollouts.logprobs)
        return {}
    """)

    assert message == snapshot("""\
group_advantage: `rewards` must be f32[..., sample]; got f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled}
  example.py:7
    7 |     advantages = ops.group_advantage(rollouts.logprobs)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`\
""")


def test_a_value_without_the_axis_says_which():
    message = step_refusal("""
        return {'x': ops.token_mean(rewards, rewards > 0)}
    """)

    assert message == snapshot("""\
token_mean: `x` must be f32[..., token]; got f32[prompt'2, sample'2]
  example.py:7
    7 |     return {'x': ops.token_mean(rewards, rewards > 0)}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: it needs an axis `token`\
""")


def test_a_bool_where_a_number_is_needed():
    message = step_refusal("""
        return {'x': ops.token_mean(rollouts.mask, rollouts.mask)}
    """)

    assert message == snapshot("""\
token_mean: `x` must be f32[..., token]; got bool[prompt'2, sample'2, token'2]
  example.py:7
    7 |     return {'x': ops.token_mean(rollouts.mask, rollouts.mask)}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: make it a number: `x.float()`\
""")


def test_a_number_where_a_bool_is_needed():
    message = step_refusal("""
        return {'x': ops.where(rewards, 1.0, 0.0).mean()}
    """)

    assert message == snapshot("""\
where: `condition` must be bool[...]; got f32[prompt'2, sample'2]
  example.py:7
    7 |     return {'x': ops.where(rewards, 1.0, 0.0).mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: make a condition by comparing: `x > 0`\
""")


def test_a_model_where_a_value_is_needed():
    message = step_refusal("""
        return {'x': ops.group_advantage(policy).mean()}
    """)

    assert message == snapshot("""\
group_advantage: `rewards` must be f32[..., sample]; got model<policy>
  example.py:7
    7 |     return {'x': ops.group_advantage(policy).mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: this op takes values, such as `rollouts.logprobs`, and no models\
""")


def test_a_value_where_a_model_is_needed():
    message = step_refusal("""
        anchor = ops.logprobs(rewards, rollouts)
        return {}
    """)

    assert message == snapshot("""\
logprobs: the first argument must be a model; got f32[prompt'2, sample'2]
  example.py:7
    7 |     anchor = ops.logprobs(rewards, rollouts)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: models are the `fl.Model` arguments of the program\
""")


def test_prompts_and_model_exchanged():
    message = step_refusal("""
        rollouts = ops.generate(prompts, policy)
        return {}
    """)

    assert message == snapshot("""\
generate: `policy` must be Model; got Prompts
  example.py:7
    7 |     rollouts = ops.generate(prompts, policy)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: models are the `fl.Model` arguments of the program, and what `ops.update` returns\
""")


def test_prompts_where_rollouts_are_needed():
    message = step_refusal("""
        anchor = ops.logprobs(policy, prompts)
        return {}
    """)

    assert message == snapshot("""\
logprobs: `rollouts` must be Rollouts, Examples, Pairs or Record; got Prompts
  example.py:7
    7 |     anchor = ops.logprobs(policy, prompts)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: rollouts come from `ops.generate`, data from arguments of the program\
""")


def test_a_torch_tensor_is_no_value():
    message = step_refusal("""
        import torch
        return {'x': (rewards + torch.ones(3)).mean()}
    """)

    assert message == snapshot("""\
add: expected a value of the program or a number; got Tensor
  example.py:8
    8 |     return {'x': (rewards + torch.ones(3)).mean()}
                          ^^^^^^^^^^^^^^^^^^^^^^^
help: inside a program, tensors come from ops and from the program's arguments\
""")


def test_a_numpy_array_is_no_value():
    message = step_refusal("""
        import numpy
        return {'x': (numpy.ones(3) + rewards).mean()}
    """)

    assert message == snapshot("""\
add: expected a value of the program or a number; got ndarray
  example.py:8
    8 |     return {'x': (numpy.ones(3) + rewards).mean()}
                          ^^^^^^^^^^^^^^^^^^^^^^^
help: inside a program, tensors come from ops and from the program's arguments\
""")


def test_a_python_bool_is_no_predicate():
    message = step_refusal("""
        return ops.cond(True, lambda: rewards, lambda: -rewards)
    """)

    assert message == snapshot("""\
cond: `predicate` must be bool[]; got bool
  example.py:7
    7 |     return ops.cond(True, lambda: rewards, lambda: -rewards)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: for what Python knows while tracing, Python's own `if` serves\
""")


def test_a_string_is_no_value():
    message = step_refusal("""
        return {'x': ops.group_advantage('rewards').mean()}
    """)

    assert message == snapshot("""\
group_advantage: expected a value of the program or a number; got str
  example.py:7
    7 |     return {'x': ops.group_advantage('rewards').mean()}
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: inside a program, tensors come from ops and from the program's arguments\
""")


def test_the_caret_of_a_call_over_several_lines_ends_with_its_first_line():
    message = step_refusal("""
        advantages = 2.0 * ops.group_advantage(
            rollouts.logprobs,
            norm_by_std=False,
        )
        return {}
    """)

    assert message == snapshot("""\
group_advantage: `rewards` must be f32[..., sample]; got f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled}
  example.py:7
    7 |     advantages = 2.0 * ops.group_advantage(
                               ^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:6
    6 |     rollouts, rewards = ops.score("reward", rollouts)
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`\
""")
