"""Golden texts: what a loss may not do, and metrics."""

import pytest
from inline_snapshot import snapshot

from tests.ir.source import refusal, step_refusal, traced


def outcome(line):
    return step_refusal(f"""
        def loss(new):
            {line}
            return ops.token_mean(new.logprobs, rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)


def test_a_loss_that_samples():
    assert outcome("ops.generate(reference, prompts)") == snapshot("""\
generate: a loss can't do this: it is computed as often as its update needs it
  example.py:8
    8 |         ops.generate(reference, prompts)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: call it before the update: a loss may read any value made before\
""")


@pytest.mark.parametrize(
    "line",
    [
        'ops.score("reward", rollouts)',
        "ops.update(reference, loss, rollouts)",
        "ops.sample_until(lambda p: p, lambda p: p, prompts, groups=1, rounds=1)",
    ],
)
def test_a_loss_that_acts_on_the_world(line):
    op = line.partition("(")[0].removeprefix("ops.")

    assert outcome(line).startswith(
        f"{op}: a loss can't do this: it is computed as often as its update needs it\n"
    )


def test_a_function_called_loss_may_be_a_program():
    graph = traced("""
        @fl.program
        def loss(policy: fl.Model, prompts: fl.Prompts):
            return {"truncated": ops.generate(policy, prompts).truncated.float().mean()}
    """)

    assert [name for name, _ in graph.outputs] == ["metrics.truncated"]


def test_a_metric_of_a_loss_without_a_name():
    assert step_refusal("""
        loss = lambda new: (ops.token_mean(new.logprobs, rollouts.mask), {3: rewards.mean()})
        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """) == snapshot("""\
update: a metric's name must be a string; got 3
  example.py:8
    8 |     policy, stats = ops.update(policy, loss, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `{"name": x}`\
""")


@pytest.mark.parametrize(
    ("returned", "got"),
    [
        ("loss, rewards.mean()", "(f32[], f32[])"),
        ("loss, {}, 3", "(f32[], dict, int)"),
        ("loss, None", "(f32[], NoneType)"),
        ("loss,", "(f32[])"),
    ],
)
def test_a_loss_that_returns_more_than_metrics_by_name(returned, got):
    said = step_refusal(f"""
        def loss(new):
            loss = ops.token_mean(new.logprobs, rollouts.mask)
            return {returned}

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert said.replace(got, "GOT") == snapshot("""\
update: the loss must return f32[], or f32[] and a dict of metrics; got GOT
  example.py:11
   11 |     policy, stats = ops.update(policy, loss, rollouts)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: name what is measured: `return loss, {"kl": kl}`\
""")


def test_a_metric_of_a_program_without_a_name():
    assert step_refusal("return {rewards.mean(): 1.0}") == snapshot("""\
`step`: a metric's name must be a string; got f32[]
  example.py:4
    4 | def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: write `return policy, {'reward': rewards.mean()}`\
""")


def test_a_metric_of_a_loss_may_be_a_number():
    graph = traced("""
        @fl.program
        def step(policy: fl.Model, examples: fl.Examples, *, beta=0.5):
            loss = lambda new: (ops.token_mean(-new.logprobs, examples.mask), {"beta": beta})
            policy, stats = ops.update(policy, loss, examples)
            return policy, stats
    """)

    assert "metrics.policy/beta" in dict(graph.outputs)


def test_pairs_of_three_samples():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=3))
            rollouts = ops.select(rollouts, where=ops.has_signal(rewards))

            def loss(new):
                ratios = new.logprobs.sum(over="token", mask=rollouts.mask)
                return ops.dpo_loss(ratios).mean()

            policy, stats = ops.update(policy, loss, rollouts)
            return policy, stats
    """)

    assert message == snapshot("""\
dpo_loss: takes pairs, two samples a prompt; got 3 a prompt
  example.py:10
   10 |         return ops.dpo_loss(ratios).mean()
                       ^^^^^^^^^^^^^^^^^^^^
help: draw two, `ops.generate(policy, prompts, n=2)`, or take `fl.Pairs`\
""")


@pytest.mark.parametrize(
    ("n", "chosen"), [(2, ""), (3, "rollouts = ops.select(rollouts, where=best)")]
)
def test_pairs_of_two_samples_or_of_a_number_that_is_not_known(n, chosen):
    traced(f"""
        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n={n}))
            best = rewards > 0
            {chosen}
            loss = lambda new: ops.bradley_terry(new.rewards).mean()
            policy, stats = ops.update(policy, loss, rollouts)
            return policy, stats
    """)
