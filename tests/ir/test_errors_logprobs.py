"""Golden texts: log-probabilities that may not meet in a ratio or a KL."""

from inline_snapshot import snapshot

from tests.ir.source import refusal, step_refusal, traced


def test_a_kl_at_unequal_temperatures():
    message = step_refusal("""
        anchor = ops.logprobs(reference, rollouts, temperature=0.5)
        return {"kl": ops.token_mean(ops.kl(rollouts.logprobs, anchor), rollouts.mask)}
    """)

    assert message == snapshot("""\
kl: `logprobs` and `reference` are log-probabilities of differently shaped distributions, {policy.0 T=1 sampled} and {reference.0 T=0.5}: temperature, top_p, top_k and min_tokens must agree
  example.py:8
    8 |     return {"kl": ops.token_mean(ops.kl(rollouts.logprobs, anchor), rollouts.mask)}
                                         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     anchor = ops.logprobs(reference, rollouts, temperature=0.5)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `ops.logprobs(model, rollouts)` recomputes them at the temperature of the rollouts and without the others: compare two of these\
""")


def test_a_difference_at_unequal_temperatures():
    message = step_refusal("""
        anchor = ops.logprobs(reference, rollouts, temperature=0.5)
        return {"kl": ops.token_mean(rollouts.logprobs - anchor, rollouts.mask)}
    """)

    assert message == snapshot("""\
sub: `a` and `b` are log-probabilities of differently shaped distributions, {policy.0 T=1 sampled} and {reference.0 T=0.5}: temperature, top_p, top_k and min_tokens must agree
  example.py:8
    8 |     return {"kl": ops.token_mean(rollouts.logprobs - anchor, rollouts.mask)}
                                         ^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     anchor = ops.logprobs(reference, rollouts, temperature=0.5)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `ops.logprobs(model, rollouts)` recomputes them at the temperature of the rollouts and without the others: compare two of these\
""")


def test_a_ratio_to_samples_of_another_top_p():
    message = step_refusal("""
        rollouts = ops.generate(policy, prompts, n=4, top_p=0.9)

        def loss(new):
            return ops.token_mean(ops.clipped_surrogate(new.logprobs, rollouts.logprobs, 1.0), rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
clipped_surrogate: `new` and `old` are log-probabilities of differently shaped distributions, {policy.0 T=1} and {policy.0 T=1 top_p=0.9 sampled}: temperature, top_p, top_k and min_tokens must agree
  example.py:10
   10 |         return ops.token_mean(ops.clipped_surrogate(new.logprobs, rollouts.logprobs, 1.0), rollouts.mask)
                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     rollouts = ops.generate(policy, prompts, n=4, top_p=0.9)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `ops.logprobs(model, rollouts)` recomputes them at the temperature of the rollouts and without the others: compare two of these\
""")


def test_a_ratio_across_models():
    message = step_refusal("""
        anchor = ops.logprobs(reference, rollouts)

        def loss(new):
            return ops.token_mean(ops.clipped_surrogate(new.logprobs, anchor, 1.0), rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
clipped_surrogate: `new` and `old` must be of one model, in two versions; got {policy.0 T=1} and {reference.0 T=1}: a ratio across models is not an importance weight
  example.py:10
   10 |         return ops.token_mean(ops.clipped_surrogate(new.logprobs, anchor, 1.0), rollouts.mask)
                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     anchor = ops.logprobs(reference, rollouts)
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: compare with the sampling policy's: `rollouts.logprobs`; between models use `ops.kl`\
""")


def test_a_ratio_over_other_tokens():
    message = step_refusal("""
        other = ops.generate(policy, prompts, n=4)

        def loss(new):
            return ops.token_mean(ops.clipped_surrogate(new.logprobs, other.logprobs, 1.0), rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats
    """)

    assert message == snapshot("""\
clipped_surrogate: `old` must be f32[prompt'2, sample'2, token'2], or the first axes of that; got f32[prompt, sample'3, token'3]{policy.0 T=1 sampled} (prompt'2 by score at example.py:6; prompt by prompts at example.py:4)
  example.py:10
   10 |         return ops.token_mean(ops.clipped_surrogate(new.logprobs, other.logprobs, 1.0), rollouts.mask)
                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:7
    7 |     other = ops.generate(policy, prompts, n=4)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: use values that came out of the same op (`ops.score` and `ops.select` return the rows again, less the dropped ones), or join them by row with `ops.align(x, to=rollouts)`\
""")


def test_a_ratio_to_samples_that_could_not_end():
    message = refusal("""
        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts = ops.generate(policy, prompts, min_tokens=4)

            def loss(new):
                ratio = ops.importance_weights(new.logprobs, rollouts.logprobs, rollouts.mask)[0]
                return ops.token_mean(ratio, rollouts.mask)

            policy, stats = ops.update(policy, loss, rollouts)
            return policy, stats
    """)

    assert message == snapshot("""\
importance_weights: `train` and `rollout` are log-probabilities of differently shaped distributions, {policy.0 T=1} and {policy.0 T=1 min_tokens=4 sampled}: temperature, top_p, top_k and min_tokens must agree
  example.py:8
    8 |         ratio = ops.importance_weights(new.logprobs, rollouts.logprobs, rollouts.mask)[0]
                        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  example.py:5
    5 |     rollouts = ops.generate(policy, prompts, min_tokens=4)
                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `ops.logprobs(model, rollouts)` recomputes them at the temperature of the rollouts and without the others: compare two of these\
""")


def test_where_to_stop_does_not_change_a_distribution():
    graph = traced("""
        @fl.program
        def step(policy: fl.Model, prompts: fl.Prompts):
            rollouts = ops.generate(policy, prompts, stop="\\n", max_tokens=9)
            gap = ops.logprobs(policy, rollouts) - rollouts.logprobs
            return {"gap": ops.token_mean(gap, rollouts.mask)}
    """)

    assert [name for name, _ in graph.outputs] == ["metrics.gap"]
