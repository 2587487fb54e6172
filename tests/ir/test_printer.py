"""Graphs as text: every part is there, stable, and nested graphs stand inside their node."""

from inline_snapshot import snapshot

from flowrl.ir.printer import text
from programs.sft import sft
from tests.ir.source import STEP, traced


def test_a_program_with_a_loss():
    assert text(sft.trace().graph, locations=False) == snapshot("""\
graph sft
  input %policy: model<policy>
  input %examples.context: i32[example, context]
  input %examples.rows: row[example]
  input %examples.tokens: i32[example, token]
  input %examples.mask: bool[example, token]
  %0 = update(%policy, %examples.context, %examples.tokens) {reads=[logprobs]}
      .model: model<policy>
      .loss: f32[]
      .grad_norm: f32[]
      .learning_rate: f32[]
      region loss
        input %new.logprobs: f32[example, token]{policy.0 T=1}
        input %outer.0: bool[example, token] = %examples.mask
        %0: f32[example, token] = neg(%new.logprobs)
        %1: f32[] = token_mean(%0, %outer.0)
        return loss=%1
  return policy=%0.model, metrics.policy/loss=%0.loss, metrics.policy/grad_norm=%0.grad_norm, metrics.policy/learning_rate=%0.learning_rate\
""")


def test_control_flow_and_selections():
    graph = traced(
        STEP
        + """\
    kept = ops.select(rollouts, where=rewards > 0.5)
    batch = ops.record(kept, weight=kept.truncated.float())

    def body(total, mb):
        return total + mb.weight.mean() * rewards.mean(), {"weight": mb.weight.mean()}

    total, stats = ops.scan(body, 0.0 * rewards.mean(), ops.minibatches(batch, sequences=8, epochs=2))
    best = ops.cond(total > 1.0, lambda: total, lambda: rewards.mean())
    return stats | {"best": best}
"""
    )

    assert text(graph) == snapshot("""\
graph step
  input %policy: model<policy>
  input %reference: model<reference>
  input %prompts.context: i32[prompt, context]
  input %prompts.rows: row[prompt]
  %0 = generate(%policy, %prompts.context, %prompts.rows) {n=4}  # example.py:5
      .tokens: i32[prompt, sample, token]
      .logprobs: f32[prompt, sample, token]{policy.0 T=1 sampled}
      .mask: bool[prompt, sample, token]
      .truncated: bool[prompt, sample]
      .version: i32[prompt, sample]
  %1 = score(%prompts.rows, %0.tokens) {functions=[reward]}  # example.py:6
      .rewards: f32[prompt'2, sample'2]
      .kept: selection[prompt'2, sample'2, token'2, context'2]
  %2: i32[prompt'2, context'2] = take(%1.kept, %prompts.context)  # example.py:6
  %3: row[prompt'2] = take(%1.kept, %prompts.rows)  # example.py:6
  %4: i32[prompt'2, sample'2, token'2] = take(%1.kept, %0.tokens)  # example.py:6
  %5: f32[prompt'2, sample'2, token'2]{policy.0 T=1 sampled} = take(%1.kept, %0.logprobs)  # example.py:6
  %6: bool[prompt'2, sample'2, token'2] = take(%1.kept, %0.mask)  # example.py:6
  %7: bool[prompt'2, sample'2] = take(%1.kept, %0.truncated)  # example.py:6
  %8: i32[prompt'2, sample'2] = take(%1.kept, %0.version)  # example.py:6
  %9: bool[prompt'2, sample'2] = greater(%1.rewards, 0.5)  # example.py:7
  %10: selection[prompt'3, sample'3, context'3, token'3] = select(%9)  # example.py:7
  %11: i32[prompt'3, context'3] = take(%10, %2)  # example.py:7
  %12: row[prompt'3] = take(%10, %3)  # example.py:7
  %13: i32[prompt'3, sample'3, token'3] = take(%10, %4)  # example.py:7
  %14: f32[prompt'3, sample'3, token'3]{policy.0 T=1 sampled} = take(%10, %5)  # example.py:7
  %15: bool[prompt'3, sample'3, token'3] = take(%10, %6)  # example.py:7
  %16: bool[prompt'3, sample'3] = take(%10, %7)  # example.py:7
  %17: i32[prompt'3, sample'3] = take(%10, %8)  # example.py:7
  %18: f32[prompt'3, sample'3] = float(%16)  # example.py:8
  %19: f32[] = mean(%1.rewards)  # example.py:13
  %20: f32[] = mul(0, %19)  # example.py:13
  %21: minibatches[prompt'4, context'4, sample'4, token'4] = minibatches(%13) {sequences=8, epochs=2, by=group}  # example.py:13
  %22 = scan(%21, %20, %11, %12, %13, %14, %15, %16, %17, %18)  # example.py:13
      .carry: f32[]
      .stats.weight: f32[turn]
      region body
        input %carry: f32[]
        input %mb.prompts.context: i32[prompt'4, context'4]
        input %mb.prompts.rows: row[prompt'4]
        input %mb.tokens: i32[prompt'4, sample'4, token'4]
        input %mb.logprobs: f32[prompt'4, sample'4, token'4]{policy.0 T=1 sampled}
        input %mb.mask: bool[prompt'4, sample'4, token'4]
        input %mb.truncated: bool[prompt'4, sample'4]
        input %mb.version: i32[prompt'4, sample'4]
        input %mb.weight: f32[prompt'4, sample'4]
        input %outer.0: f32[prompt'2, sample'2] = %1.rewards
        %0: f32[] = mean(%mb.weight)  # example.py:11
        %1: f32[] = mean(%outer.0)  # example.py:11
        %2: f32[] = mul(%0, %1)  # example.py:11
        %3: f32[] = add(%carry, %2)  # example.py:11
        %4: f32[] = mean(%mb.weight)  # example.py:11
        return carry=%3, stats.weight=%4
  %23: bool[] = greater(%22.carry, 1)  # example.py:14
  %24: f32[] = cond(%23)  # example.py:14
      region then
        input %outer.0: f32[] = %22.carry
        return value=%outer.0
      region orelse
        input %outer.0: f32[prompt'2, sample'2] = %1.rewards
        %0: f32[] = mean(%outer.0)  # example.py:14
        return value=%0
  %25: f32[] = mean(%1.rewards)  # example.py:4
  %26: f32[] = mean(%22.stats.weight)  # example.py:4
  return metrics.weight=%26, metrics.best=%24, metrics.reward=%25\
""")


def test_tracing_twice_prints_the_same():
    assert text(sft.trace().graph) == text(sft.trace().graph)
