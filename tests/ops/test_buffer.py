"""Buffers of rows: carried as inputs and outputs whose types follow from what is added."""

import pytest
from inline_snapshot import snapshot

from tests.ir.source import refusal, traced

HEAD = """
@fl.program
def step(policy: fl.Model, prompts: fl.Prompts, replay: fl.Carry = fl.Carry(fl.Buffer())):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    batch = ops.record(rollouts, rewards=rewards)
"""


def carried(graph):
    """Return the types of the inputs and outputs that the buffer makes, by name."""
    ends = (graph.inputs, graph.outputs)
    return [{n: str(v.type) for n, v in end if n.startswith("replay.")} for end in ends]


def test_a_buffer_is_an_input_and_an_output_for_each_field_of_its_rows():
    graph = traced(HEAD + "    return ops.append(replay, batch, capacity=4), {}")

    before, after = carried(graph)
    assert before == snapshot(
        {
            "replay.prompts.context": "i32[prompt'3, context'3]",
            "replay.prompts.rows": "row[prompt'3]",
            "replay.tokens": "i32[prompt'3, sample'3, token'3]",
            "replay.logprobs": "f32[prompt'3, sample'3, token'3]{policy.* T=1 sampled}",
            "replay.mask": "bool[prompt'3, sample'3, token'3]",
            "replay.truncated": "bool[prompt'3, sample'3]",
            "replay.version": "i32[prompt'3, sample'3]",
            "replay.rewards": "f32[prompt'3, sample'3]",
        }
    )
    assert after == snapshot(
        {
            "replay.prompts.context": "i32[prompt'4, context'4]",
            "replay.prompts.rows": "row[prompt'4]",
            "replay.tokens": "i32[prompt'4, sample'4, token'4]",
            "replay.logprobs": "f32[prompt'4, sample'4, token'4]{policy.* T=1 sampled}",
            "replay.mask": "bool[prompt'4, sample'4, token'4]",
            "replay.truncated": "bool[prompt'4, sample'4]",
            "replay.version": "i32[prompt'4, sample'4]",
            "replay.rewards": "f32[prompt'4, sample'4]",
        }
    )


def test_several_additions_to_one_buffer_all_come_from_one_input():
    graph = traced(
        HEAD
        + """
    both = ops.append(ops.append(replay, batch, capacity=4), batch, capacity=6)
    return both, {"left": ops.append(replay, batch, capacity=2).rows.rewards.mean()}
"""
    )

    appends = [node for node in graph.nodes if node.op.name == "append"]
    first = [node.args[0] for node in appends if node.args[0] is graph.input("replay.rewards")]
    assert len(first) == 2
    assert len(appends) == 3 * len(carried(graph)[0])


def test_rows_of_a_buffer_are_aligned_by_row_as_others_are():
    graph = traced(
        HEAD
        + """
    replay = ops.append(replay, batch, capacity=4)
    joined = ops.align(replay.rows.rewards, to=rollouts)
    return replay, {"joined": joined.mean()}
"""
    )

    (align,) = [node for node in graph.nodes if node.op.name == "align"]
    assert align.args[1] is dict(graph.outputs)["replay.prompts.rows"]


def test_rows_that_are_not_known_yet():
    assert refusal(HEAD + "    return replay.rows, {}") == snapshot("""\
nothing is known of the rows of `replay` yet
  example.py:7
    7 |     return replay.rows, {}
                   ^^^^^^^^^^^
help: add those of this step first: `replay = ops.append(replay, batch, capacity=64)`\
""")


def test_a_buffer_that_is_returned_as_it_came_carries_nothing():
    assert carried(traced(HEAD + "    return replay, {}")) == [{}, {}]


def test_a_buffer_that_is_not_returned():
    text = HEAD + "    return {'mean': ops.append(replay, batch, capacity=4).rows.rewards.mean()}"

    assert refusal(text) == snapshot("""\
`step`: the next value of `replay` is never returned
  example.py:4
    4 | def step(policy: fl.Model, prompts: fl.Prompts, replay: fl.Carry = fl.Carry(fl.Buffer())):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: return it in the place of the argument: `return policy, replay, metrics`\
""")


def test_a_buffer_that_is_not_carried():
    text = HEAD + "    return ops.append(fl.Buffer(), batch, capacity=4), {}"

    assert refusal(text) == snapshot("""\
append: this buffer isn't carried: its rows would be gone after the step
  example.py:7
    7 |     return ops.append(fl.Buffer(), batch, capacity=4), {}
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: make it an argument of the program: `replay: fl.Carry = fl.Carry(fl.Buffer())`\
""")


@pytest.mark.parametrize(
    "text",
    [
        "ops.cond(rewards.mean() > 0.0, lambda b: b, lambda b: b, replay)",
        "ops.cond(rewards.mean() > 0.0, lambda: ops.append(replay, batch, capacity=4), lambda: replay)",
        "ops.scan(lambda b, mb: (b, {}), replay, ops.minibatches(batch, sequences=4))[0]",
    ],
)
def test_a_buffer_inside_a_branch_or_a_loop(text):
    message = refusal(HEAD + f"    return {text}, {{}}")

    assert "takes models, values, and records of them; got a buffer\n  example.py:7\n" in message


def test_rows_with_other_fields_than_the_buffer_has():
    text = (
        HEAD
        + "    return ops.append(ops.append(replay, batch, capacity=4), rollouts, capacity=4), {}"
    )

    assert refusal(text) == snapshot("""\
append: the buffer has the fields prompts.context, prompts.rows, tokens, logprobs, mask, truncated, version, rewards; got prompts.context, prompts.rows, tokens, logprobs, mask, truncated, version
  example.py:7
    7 |     return ops.append(ops.append(replay, batch, capacity=4), rollouts, capacity=4), {}
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: all that is added to one buffer must have the same fields: carry a second one\
""")


def test_rows_sampled_otherwise_than_those_of_the_buffer():
    text = (
        HEAD
        + """
    replay = ops.append(replay, rollouts, capacity=4)
    return ops.append(replay, ops.generate(policy, prompts, temperature=0.5), capacity=4), {}
"""
    )

    assert refusal(text) == snapshot("""\
append: the buffer has f32[prompt'4, sample'4, token'4]{policy.* T=1 sampled}; got f32[prompt, sample'5, token'5]{policy.0 T=0.5 sampled}
  example.py:9
    9 |     return ops.append(replay, ops.generate(policy, prompts, temperature=0.5), capacity=4), {}
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:8
    8 |     replay = ops.append(replay, rollouts, capacity=4)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: all that is added to one buffer must be of one type: carry a second one\
""")


def test_a_capacity_of_none():
    assert refusal(HEAD + "    return ops.append(replay, batch, capacity=0), {}") == snapshot("""\
append: `capacity` must be an integer of at least 1; got 0
  example.py:7
    7 |     return ops.append(replay, batch, capacity=0), {}
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: capacity counts prompts, with all their samples\
""")


def test_rows_given_as_a_tensor():
    assert refusal(HEAD + "    return ops.append(replay, rewards, capacity=4), {}") == snapshot("""\
append: `batch` must be Rollouts, Examples, Pairs or Record; got f32[prompt'2, sample'2]
  example.py:7
    7 |     return ops.append(replay, rewards, capacity=4), {}
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: rollouts come from `ops.generate`, data from arguments of the program\
""")


def test_a_record_given_in_the_place_of_the_buffer():
    assert refusal(HEAD + "    return ops.append(batch, batch, capacity=4), {}") == snapshot("""\
append: `buffer` must be Buffer; got Record
  example.py:7
    7 |     return ops.append(batch, batch, capacity=4), {}
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: carry one: `replay: fl.Carry = fl.Carry(fl.Buffer())` among the arguments\
""")


def test_a_record_returned_in_the_place_of_the_buffer():
    text = HEAD + "    return ops.append(replay, batch, capacity=4).rows, {}"

    assert refusal(text) == snapshot("""\
`step`: returns Record where none is expected: models and carried values are returned in the order of the arguments (`policy`, `replay`), then a dict of metrics
  example.py:4
    4 | def step(policy: fl.Model, prompts: fl.Prompts, replay: fl.Carry = fl.Carry(fl.Buffer())):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `return policy, {'reward': rewards.mean()}`\
""")


def test_an_addition_inside_a_loss():
    text = (
        HEAD
        + """
    def loss(new):
        ops.append(replay, batch, capacity=4)
        return ops.token_mean(-new.logprobs, rollouts.mask)

    return ops.update(policy, loss, rollouts)
"""
    )

    assert refusal(text) == snapshot("""\
append: a loss can't do this: it is computed as often as its update needs it
  example.py:9
    9 |         ops.append(replay, batch, capacity=4)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: call it before the update: a loss may read any value made before\
""")


DRAW = """
    draw = lambda prompts: ops.score("reward", ops.generate(policy, prompts, n=2))
    keep = lambda drawn: ops.has_signal(drawn[1])
"""
UNTIL = "ops.sample_until(draw, keep, prompts, groups=2, rounds=3"


def test_a_surplus_is_an_input_and_an_output_for_each_field_of_what_is_drawn():
    graph = traced(
        HEAD
        + DRAW
        + f"    _, left, _ = {UNTIL}, surplus=replay, capacity=2)\n    return left, {{}}"
    )

    before, after = carried(graph)
    assert before.keys() == after.keys()
    assert before["replay.0.logprobs"] == "f32[prompt'7, sample'7, token'7]{policy.* T=1 sampled}"
    assert after["replay.1"] == "f32[prompt'6, sample'6]"


def test_a_surplus_of_no_capacity_carries_nothing():
    graph = traced(
        HEAD + DRAW + f"    _, left, _ = {UNTIL}, surplus=replay)\n    return left, {{}}"
    )

    assert carried(graph) == [{}, {}]


def test_a_capacity_without_a_surplus():
    assert refusal(HEAD + DRAW + f"    _, left, _ = {UNTIL}, capacity=2)") == snapshot("""\
sample_until: `capacity` must be an integer of at least 0, with a `surplus`; got 2
  example.py:10
   10 |     _, left, _ = ops.sample_until(draw, keep, prompts, groups=2, rounds=3, capacity=2)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: carry the groups that are left over: `surplus: fl.Carry = fl.Carry(fl.Buffer())`\
""")


def test_a_surplus_that_is_no_buffer():
    assert refusal(HEAD + DRAW + f"    _, left, _ = {UNTIL}, surplus=batch)") == snapshot("""\
sample_until: `surplus` must be Buffer; got Record
  example.py:10
   10 |     _, left, _ = ops.sample_until(draw, keep, prompts, groups=2, rounds=3, surplus=batch)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: carry one: `replay: fl.Carry = fl.Carry(fl.Buffer())` among the arguments\
""")


def test_groups_sampled_otherwise_than_those_left_over():
    text = (
        HEAD
        + DRAW
        + f"""
    _, left, _ = {UNTIL}, surplus=replay, capacity=2)
    draw = lambda prompts: ops.score("reward", ops.generate(policy, prompts, n=2, top_p=0.5))
    _, left, _ = {UNTIL}, surplus=left, capacity=2)
    return left, {{}}
"""
    )

    assert refusal(text) == snapshot("""\
sample_until: the buffer has f32[prompt'6, sample'6, token'6]{policy.* T=1 sampled}; got f32[prompt'9, sample'9, token'9]{policy.0 T=1 top_p=0.5 sampled}
  example.py:13
   13 |     _, left, _ = ops.sample_until(draw, keep, prompts, groups=2, rounds=3, surplus=left, capacity=2)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:11
   11 |     _, left, _ = ops.sample_until(draw, keep, prompts, groups=2, rounds=3, surplus=replay, capacity=2)
                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: all that is added to one buffer must be of one type: carry a second one\
""")
