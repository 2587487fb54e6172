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
  return policy=%0.model, metrics.policy/loss=%0.loss, metrics.policy/grad_norm=%0.grad_norm,
      metrics.policy/learning_rate=%0.learning_rate\
""")


def test_rows_chosen():
    graph = traced(
        STEP
        + """\
    kept = ops.select([rewards, rollouts.mask], where=rewards > 0.5)
    return {"x": kept[0].mean(), "tokens": ops.count(kept[1])}
"""
    )

    assert text(graph).split("functions=", 1)[1] == snapshot("""\
[reward]}  # example.py:6
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
  %10: selection[prompt'3, sample'3, token'3] = select(%9)  # example.py:7
  %11: f32[prompt'3, sample'3] = take(%10, %1.rewards)  # example.py:7
  %12: bool[prompt'3, sample'3, token'3] = take(%10, %6)  # example.py:7
  %13: row[prompt'3] = take(%10, %3)  # example.py:7
  %14: f32[] = mean(%11)  # example.py:8
  %15: f32[prompt'3, sample'3, token'3] = float(%12)  # example.py:8
  %16: f32[] = sum(%15, %12)  # example.py:8
  %17: f32[] = mean(%1.rewards)  # example.py:4
  return metrics.x=%14, metrics.tokens=%16, metrics.reward=%17\
""")


def test_control_flow():
    graph = traced(
        """
        @fl.program
        def step(examples: fl.Examples):
            share = examples.mask.float().mean(over="token", mask=examples.mask)
            batch = ops.record(examples, share=share)
            body = lambda total, mb: (total + mb.share.mean() * share_, {"share": mb.share.mean()})
            share_ = share.mean()
            total, stats = ops.scan(body, share_, ops.minibatches(batch, sequences=8, epochs=2))
            return stats | {"best": ops.cond(total > 1.0, lambda: total, lambda: share.mean())}
        """
    )

    assert text(graph, locations=False) == snapshot("""\
graph step
  input %examples.context: i32[example, context]
  input %examples.rows: row[example]
  input %examples.tokens: i32[example, token]
  input %examples.mask: bool[example, token]
  %0: f32[example, token] = float(%examples.mask)
  %1: f32[example] = mean(%0, %examples.mask) {over=token}
  %2: f32[] = mean(%1)
  %3: minibatches[example'2, context'2, token'2] = minibatches(%examples.tokens) {sequences=8, epochs=2, by=group}
  %4 = scan(%3, %2, %examples.context, %examples.rows, %examples.tokens, %examples.mask, %1)
      .carry: f32[]
      .stats.share: f32[turn]
      region body
        input %carry: f32[]
        input %mb.prompts.context: i32[example'2, context'2]
        input %mb.prompts.rows: row[example'2]
        input %mb.tokens: i32[example'2, token'2]
        input %mb.mask: bool[example'2, token'2]
        input %mb.share: f32[example'2]
        input %outer.0: f32[] = %2
        %0: f32[] = mean(%mb.share)
        %1: f32[] = mul(%0, %outer.0)
        %2: f32[] = add(%carry, %1)
        %3: f32[] = mean(%mb.share)
        return carry=%2, stats.share=%3
  %5: bool[] = greater(%4.carry, 1)
  %6: f32[] = cond(%5)
      region then
        input %outer.0: f32[] = %4.carry
        return value=%outer.0
      region orelse
        input %outer.0: f32[example] = %1
        %0: f32[] = mean(%outer.0)
        return value=%0
  %7: f32[] = mean(%4.stats.share)
  return metrics.share=%7, metrics.best=%6\
""")


def test_tracing_twice_prints_the_same():
    assert text(sft.trace().graph) == text(sft.trace().graph)
