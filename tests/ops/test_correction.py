"""What a correction weighs, and what it refuses."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.errors import ProgramError
from programs.grpo import grpo
from programs.sft import sft


def weighed(program):
    """Return, by model, how many terms of its losses are weighted."""
    found = {}
    for node in fl.trace(fl.corrected(program)).graph.walk():
        for region in node.op.regions().values():
            names = [inner.op.name for inner in region.nodes]
            if "importance_weights" in names:
                found[node.args[0].role] = names.count("mul")
    return found


@fl.program
def two_terms(policy: fl.Model, critic: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    ours = ops.logprobs(policy, rollouts)

    def loss(new):
        first = ops.clipped_surrogate(new.logprobs, ours, rewards)
        second = ops.reinforce(new.logprobs, rewards)
        return ops.token_mean(first + second + ops.kl(new.logprobs, ours), rollouts.mask)

    def imitate(new):
        return ops.token_mean(ops.reinforce(new.logprobs, rewards), rollouts.mask)

    critic, _ = ops.update(critic, imitate, rollouts)
    policy, stats = ops.update(policy, loss, rollouts)
    return policy, critic, stats


def test_each_term_of_the_model_that_sampled_is_weighted_and_nothing_else():
    assert weighed(two_terms) == {"policy": 2}


@fl.program
def chosen(policy: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts, n=2)
    kept = ops.select(rollouts, where=ops.token_counts(rollouts.mask) > 1)

    def loss(new):
        terms = ops.reinforce(new.logprobs, ops.token_counts(kept.mask))
        return ops.token_mean(terms, kept.mask)

    policy, _ = ops.update(policy, loss, kept)
    policy, stats = ops.update(policy, loss, kept)
    return policy, stats


def test_selected_samples_keep_what_the_version_that_sampled_gave_them():
    text = fl.trace(fl.corrected(chosen)).as_text()

    assert text.count("= logprobs(") == 1
    assert text.count("importance_weights(") == 2


def test_a_correction_leaves_the_program_as_it_was():
    before = fl.trace(grpo).as_text()

    fl.trace(fl.corrected(grpo))

    assert fl.trace(grpo).as_text() == before


def refusal(make):
    with pytest.raises(ProgramError) as error:
        make()
    return str(error.value)


def test_a_program_without_a_policy_gradient_is_refused():
    assert refusal(lambda: fl.trace(fl.corrected(sft))) == snapshot("""\
`sft`: is to be corrected, but no update of the model that sampled has a policy gradient
  sft.py:8
    8 | def sft(policy: fl.Model, examples: fl.Examples):
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: leave the correction out: it weighs terms such as `ops.clipped_surrogate`\
""")


def test_options_that_contradict_each_other_are_refused():
    error = refusal(lambda: fl.corrected(grpo, mode="mask", high=None))

    assert error.splitlines()[0] == snapshot(
        "corrected: mode='mask' needs `low` or `high`; got neither"
    )


def test_samples_of_a_cut_distribution_are_refused():
    error = refusal(lambda: fl.trace(fl.corrected(grpo), {"policy": {"top_p": 0.9}}))

    assert error == snapshot("""\
importance_weights: `train` and `rollout` are log-probabilities of differently shaped distributions, {policy.0 T=1} and {policy.0 T=1 top_p=0.9 sampled}: temperature, top_p, top_k and min_tokens must agree
  grpo.py:20
   20 |         surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip)
                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
that argument was made here:
  grpo.py:15
   15 |     rollouts, rewards = ops.score("reward", rollouts)      # f32[prompt, sample]; dropped rows are gone from both
                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: `ops.logprobs(model, rollouts)` recomputes them at the temperature of the rollouts and without the others: compare two of these\
""")
