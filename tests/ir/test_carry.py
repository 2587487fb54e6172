"""Values carried from step to step: written as arguments, returned in their place."""

from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.ir.printer import text
from flowrl.ir.types import f32
from tests.ir.source import traced


@fl.program
def running_mean(
    policy: fl.Model, prompts: fl.Prompts, baseline: fl.Carry = fl.Carry(0.5), *, decay=0.9
):
    """REINFORCE with a running mean of the rewards as its baseline."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts))

    def loss(new):
        return ops.token_mean(-new.logprobs * (rewards - baseline), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, decay * baseline + (1 - decay) * rewards.mean(), stats


def names(graph, ends):
    """Return the names of the inputs or outputs, metrics left out."""
    return [name for name, _ in getattr(graph, ends) if not name.startswith("metrics.")]


def test_a_carried_number_is_an_input_and_an_output():
    traced = running_mean.trace()

    (spec,) = [spec for spec in traced.inputs if spec.name == "baseline"]
    assert spec.initial == 0.5
    assert traced.graph.input("baseline").type == f32()
    assert names(traced.graph, "outputs") == ["policy", "baseline"]


def test_a_carried_record_has_a_name_for_each_number():
    graph = traced(
        """
        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts, ema: fl.Carry = fl.Carry({"mean": 0, "square": (1, 2)})):
            _, rewards = ops.score("reward", ops.generate(policy, prompts))
            low, high = ema["square"]
            return {"mean": rewards.mean(), "square": (high, low)}, {"reward": rewards.mean()}
        """
    )

    assert names(graph, "inputs")[-3:] == ["ema.mean", "ema.square.0", "ema.square.1"]
    assert text(graph, locations=False) == snapshot("""\
graph step
  input %policy: model<policy>
  input %prompts.context: i32[prompt, context]
  input %prompts.rows: row[prompt]
  input %ema.mean: f32[]
  input %ema.square.0: f32[]
  input %ema.square.1: f32[]
  %0 = generate(%policy, %prompts.context, %prompts.rows) {n=1}
      .tokens: i32[prompt, sample, token]
      .logprobs: f32[prompt, sample, token]{policy.0 T=1 sampled}
      .mask: bool[prompt, sample, token]
      .truncated: bool[prompt, sample]
      .version: i32[prompt, sample]
  %1 = score(%prompts.rows, %0.tokens) {functions=[reward]}
      .rewards: f32[prompt'2, sample'2]
      .kept: selection[prompt'2, sample'2, token'2, context'2]
  %2: i32[prompt'2, context'2] = take(%1.kept, %prompts.context)
  %3: row[prompt'2] = take(%1.kept, %prompts.rows)
  %4: i32[prompt'2, sample'2, token'2] = take(%1.kept, %0.tokens)
  %5: f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled} = take(%1.kept, %0.logprobs)
  %6: bool[prompt'2, sample'2, token'2] = take(%1.kept, %0.mask)
  %7: bool[prompt'2, sample'2] = take(%1.kept, %0.truncated)
  %8: i32[prompt'2, sample'2] = take(%1.kept, %0.version)
  %9: f32[] = mean(%1.rewards)
  %10: f32[] = mean(%1.rewards)
  return ema.mean=%9, ema.square.0=%ema.square.1, ema.square.1=%ema.square.0, metrics.reward=%10\
""")


def test_a_carry_may_end_in_a_number_that_python_knows():
    graph = traced(
        """
        @fl.program
        def step(policy: fl.Model, baseline: fl.Carry = fl.Carry(1.0)):
            return 0.25, {}
        """
    )

    assert text(graph, locations=False) == snapshot("""\
graph step
  input %policy: model<policy>
  input %baseline: f32[]
  return baseline=0.25\
""")
