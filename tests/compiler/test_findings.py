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
            "The loss at dpo.py:19 takes two passes, which costs one more forward pass: dpo_loss looks beyond single sequences at dpo.py:16."
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


def test_a_hyperparameter_that_another_turns_off_is_named_with_that():
    @fl.program
    def switched(policy: fl.Model, prompts: fl.Prompts, *, coef=0.0, clip=0.2):
        rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))

        def loss(new):
            bound = ops.clip(new.logprobs, -clip, clip)
            return ops.token_mean(rewards * new.logprobs + coef * bound, rollouts.mask)

        policy, stats = ops.update(policy, loss, rollouts)
        return policy, stats

    assert findings(switched) == snapshot(
        ["`clip` = 0.2 changes nothing that is computed: coef = 0."]
    )
    assert findings(switched, {"coef": 0.5}) == []


def test_a_hyperparameter_whose_other_values_are_refused_is_not_called_inert():
    @fl.program
    def strict(policy: fl.Model, *, only=3, word="x"):
        if only != 3:
            raise ValueError(only)
        return policy

    assert findings(strict) == []


def sampler(**options):
    """Return a program that trains on its samples, without a ratio or with one."""

    @fl.program
    def program(policy: fl.Model, prompts: fl.Prompts, *, ratio=False):
        def draw(prompts):
            return ops.score("reward", ops.generate(policy, prompts, n=4, **options))

        keep = lambda drawn: ops.has_signal(drawn[1])
        (rollouts, rewards), *_ = ops.sample_until(draw, keep, prompts, groups=2, rounds=2)
        old = ops.logprobs(policy, rollouts)
        batch = ops.record(rollouts, advantages=ops.leave_one_out(rewards), old=old)

        def loss(mb):
            plain = lambda new: ops.token_mean(ops.reinforce(new.logprobs, mb.advantages), mb.mask)
            weighed = lambda new: ops.token_mean(
                ops.clipped_surrogate(new.logprobs, mb.old, mb.advantages), mb.mask
            )
            return weighed if ratio else plain

        body = lambda model, mb: ops.update(model, loss(mb), mb)
        return ops.scan(body, policy, ops.minibatches(batch, sequences=4))

    return program


def test_training_on_filtered_samples_without_a_ratio_is_named():
    found = findings(sampler(top_p=0.9, min_tokens=2))

    assert [line for line in found if "cut" in line] == snapshot(
        [
            "The loss at test_findings.py:95 trains on samples of a cut distribution (top_p=0.9, min_tokens=2, drawn at test_findings.py:81) without correcting for it."
        ]
    )


def test_filtered_samples_that_went_through_a_buffer_are_named():
    @fl.program
    def replaying(policy: fl.Model, prompts: fl.Prompts, replay: fl.Carry = fl.Carry(fl.Buffer())):
        rollouts = ops.generate(policy, prompts, top_k=5)
        replay = ops.append(replay, rollouts, capacity=8)
        old = replay.rows
        policy, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, old.mask), old)
        return policy, replay, stats

    assert len([line for line in findings(replaying) if "cut distribution" in line]) == 1


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"top_k": 5}])
def test_greedy_samples_and_those_of_the_likeliest_tokens_are_filtered(options):
    assert any("without correcting for it" in line for line in findings(sampler(**options)))


def test_plain_samples_and_those_with_a_ratio_have_no_such_finding():
    found = findings(sampler(temperature=0.7)) + findings(sampler(top_p=0.9), {"ratio": True})

    assert not any("cut" in line for line in found)


def test_a_run_file_is_told_of_the_hyperparameters_that_it_gives():
    program = load_program("ppo_full")

    assert findings(program, {"clip": 0.1}, given=["clip"]) == []
    assert findings(program, {"horizon": 9}, given=["horizon"]) == [
        "`horizon` = 9 changes nothing that is computed: target_kl = None."
    ]
    assert findings(program, {"horizon": 9, "target_kl": 6.0}, given=["horizon"]) == []


def test_a_hyperparameter_that_would_be_refused_if_it_counted_is_named_with_what_turns_it_off():
    assert findings(load_program("ppo_full"), {"horizon": 0}, given=["horizon"]) == [
        "`horizon` = 0 changes nothing that is computed: target_kl = None."
    ]


def test_a_hyperparameter_at_none_is_not_called_inert_whatever_else_it_may_be():
    @fl.program
    def optional(policy: fl.Model, examples: fl.Examples, *, style=None, cap=None):
        scale = 2.0 if style == "twice" or (cap or 0) > 1 else 1.0
        loss = lambda new: scale * ops.token_mean(-new.logprobs, examples.mask)
        policy, stats = ops.update(policy, loss, examples)
        return policy, stats

    assert findings(optional) == []
