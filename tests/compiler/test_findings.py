"""What the passes find out about a program."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl import ops
from flowrl.compiler.findings import findings
from flowrl.config.programs import load_program


@pytest.mark.parametrize("name", ["grpo", "ppo", "sft", "evaluate"])
def test_the_programs_at_their_defaults_have_no_finding(name):
    assert findings(load_program(name)) == []


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_without_a_penalty_the_reference_is_never_loaded(name):
    assert findings(load_program(name), {"kl_coef": 0.0}) == [
        "`reference` is never read and never loaded: kl_coef = 0."
    ]


def test_a_loss_that_needs_two_passes_says_why():
    assert findings(load_program("dpo")) == snapshot(
        [
            "The loss at dpo.py:19 takes two passes, one forward dearer: dpo_loss looks beyond single sequences at dpo.py:16."
        ]
    )


def test_a_hyperparameter_that_changes_nothing_is_named():
    @fl.program
    def forgetful(policy: fl.Model, examples: fl.Examples, *, beta=0.1, scale=1.0, on=True):
        loss = lambda new: scale * ops.token_mean(-new.logprobs, examples.mask)
        policy, stats = ops.update(policy, loss, examples)
        return policy, stats

    assert findings(forgetful) == snapshot(
        [
            "`beta` = 0.1 changes nothing that is computed.",
            "`on` = True changes nothing that is computed.",
        ]
    )


def test_a_hyperparameter_of_a_dead_term_is_named():
    @fl.program
    def switched(policy: fl.Model, prompts: fl.Prompts, *, coef=0.0, clip=0.2):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))

        def loss(new):
            bound = ops.clip(new.logprobs, -clip, clip)
            return ops.token_mean(rewards * new.logprobs + coef * bound, rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats

    assert findings(switched) == snapshot(["`clip` = 0.2 changes nothing that is computed."])
    assert findings(switched, {"coef": 0.5}) == []


def test_a_hyperparameter_whose_other_values_are_refused_is_not_called_inert():
    @fl.program
    def strict(policy: fl.Model, *, only=3, word="x"):
        if only != 3:
            raise ValueError(only)
        return policy

    assert findings(strict) == []
