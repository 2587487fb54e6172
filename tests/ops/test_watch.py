"""What `update` measures by itself, and the metrics that programs add."""

import pytest
import torch
from inline_snapshot import snapshot

from flowrl import ops
from flowrl.errors import EngineError
from tests.functional.batches import Batch
from tests.ir.source import STEP, traced
from tests.ops.language import POLICY, Language, elements

LOSS = """
    advantages = ops.group_advantage(rewards)
    old, mask = rollouts.logprobs, rollouts.mask
    policy, stats = ops.update(policy, lambda new: ops.token_mean({loss}, mask), rollouts)
    return policy, stats
"""
GAPS = ("logprob_gap_mean", "logprob_gap_max")
KNOWN = ("loss", "grad_norm", "learning_rate", "kl_old", *GAPS)


def measured(loss):
    """Return what an update reports of a loss, beside what it reports of all."""
    outputs = [name for name, _ in traced(STEP + LOSS.format(loss=loss)).outputs]
    names = [n.removeprefix("metrics.policy/") for n in outputs if n.startswith("metrics.policy")]
    return [name for name in names if name not in KNOWN]


# fmt: off
MEASURED = {
    "ops.clipped_surrogate(new.logprobs, old, advantages)": snapshot(['clip_fraction', 'clip_fraction_low', 'clip_fraction_high', 'ratio_min', 'ratio_max']),
    "ops.clipped_surrogate(new.logprobs, old, advantages, dual_clip=3.0)": snapshot(['clip_fraction', 'clip_fraction_low', 'clip_fraction_high', 'ratio_min', 'ratio_max', 'dual_clip_fraction']),
    "ops.sequence_surrogate(new.logprobs, old, advantages, mask)": snapshot(['clip_fraction', 'clip_fraction_low', 'clip_fraction_high', 'ratio_min', 'ratio_max']),
    "ops.decoupled(new.logprobs, old, old, advantages)": snapshot(['clip_fraction', 'clip_fraction_low', 'clip_fraction_high', 'ratio_min', 'ratio_max']),
    "ops.clip_cov(new.logprobs, old, advantages, mask)": snapshot(['clip_fraction', 'clip_fraction_low', 'clip_fraction_high', 'ratio_min', 'ratio_max']),
    "ops.cispo(new.logprobs, old, advantages)": snapshot(['clip_fraction', 'ratio_min', 'ratio_max']),
    "ops.reinforce(new.logprobs, advantages) - 0.1 * new.entropy": snapshot(['entropy']),
    "ops.kl(new.logprobs, old)": snapshot(['kl']),
    "0.0 * ops.kl(new.logprobs, old) + ops.reinforce(new.logprobs, advantages)": snapshot([]),
    "ops.clipped_value(new.values, old * 1.0, old * 1.0)": snapshot(['value_clip_fraction', 'explained_variance']),
    "ops.clipped_value(new.values, old * 1.0, old * 1.0, clip=None)": snapshot(['explained_variance']),
}
# fmt: on


@pytest.mark.parametrize("loss", MEASURED)
def test_an_update_measures_the_terms_of_its_loss(loss):
    assert measured(loss) == MEASURED[loss]


def test_an_op_of_the_user_is_not_taken_for_a_term_that_is_known():
    text = """
@fl.op("f32[..., token] -> f32[..., token]", per="token")
def kl(x):
    return x

"""
    loss = "kl(ops.reinforce(new.logprobs, advantages))"

    outputs = [name for name, _ in traced(text + STEP + LOSS.format(loss=loss)).outputs]

    assert "metrics.policy/kl" not in outputs


@pytest.fixture
def language():
    """Return two prompts of two samples, of 1, 2, 3 and 4 tokens, all of them trained."""
    lengths, groups = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 0, 1, 1])
    return Language(Batch(lengths, torch.ones(10, dtype=torch.bool), {}, {}, groups))


def test_rewards_are_watched_over_samples_and_groups(language):
    rewards = language.samples(torch.tensor([1.0, 1.0, 0.0, 2.0]))

    metrics = ops.watch_rewards(rewards, name="math")

    assert {name: round(float(x), 4) for name, x in metrics.items()} == snapshot(
        {
            "math_mean": 1.0,
            "math_std": 0.8165,
            "math_p10": 0.3,
            "math_p50": 1.0,
            "math_p90": 1.7,
            "math_zero_variance": 0.5,
        }
    )


def test_rewards_that_are_no_numbers_are_left_out(language):
    rewards = language.samples(torch.tensor([1.0, float("nan"), 0.0, 2.0]))

    metrics = ops.watch_rewards(rewards)

    assert float(metrics["reward_mean"]) == 1.0
    assert float(metrics["reward_p50"]) == 1.0
    assert float(metrics["reward_zero_variance"]) == 0.5


def test_lengths_are_those_of_trained_tokens():
    names = [
        name.removeprefix("metrics.")
        for name, _ in traced(STEP + "    return ops.watch_lengths(rollouts)").outputs
    ]

    assert names == snapshot(
        ["length_mean", "length_min", "length_max", "truncated_fraction", "reward"]
    )


def test_weights_are_watched_over_tokens(language):
    old = language.tokens(torch.zeros(10), POLICY)
    train = language.tokens(torch.tensor([2.0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), POLICY)
    mask = language.tokens(torch.ones(10, dtype=torch.bool))
    weights, keep = ops.importance_weights(train, old, mask, mode="mask", high=2.0)

    metrics = ops.watch_weights(weights, keep, mask)

    assert {name: round(float(x), 4) for name, x in metrics.items()} == snapshot(
        {"weight_mean": 0.9, "weight_max": 1.0, "kept_fraction": 0.9, "effective_sample_size": 0.9}
    )
    gap = ops.watch_gap(train, old, mask)
    assert {name: round(float(x), 4) for name, x in gap.items()} == snapshot(
        {"logprob_gap_mean": 0.2, "logprob_gap_max": 2.0}
    )


def test_a_reward_that_is_no_number_stops_the_run_and_is_named(language):
    rewards = language.samples(torch.tensor([1.0, 1.0, 0.0, float("nan")]))

    with pytest.raises(EngineError) as error:
        ops.leave_one_out(rewards)

    assert error.value.problem == snapshot(
        "leave_one_out: the function refused: rewards must be finite numbers; sample 3, number 1 of group 1, has nan (1 of 4 samples are not finite)"
    )
    excluded = ops.group_advantage(rewards, nonfinite="exclude")
    assert elements(excluded).tolist() == [0, 0, 0, 0]


def test_no_trained_token_is_refused_where_a_variance_is_needed(language):
    tokens = language.tokens(torch.zeros(10))
    none = language.tokens(torch.zeros(10, dtype=torch.bool))

    with pytest.raises(EngineError) as error:
        ops.whiten(tokens, none)

    assert error.value.problem == snapshot(
        "whiten: the function refused: a variance with ddof=1 needs more than 1 trained tokens; got 0"
    )
    assert float(ops.token_mean(tokens, none)) == 0


def test_adaptive_kl_counts_the_samples_that_were_measured(language):
    """Twice the target is clipped to 1.2 of it; 4 samples of a horizon of 8."""
    sequence_kl = language.samples(torch.tensor([4.0, 0.0, 2.0, 2.0]))

    coefficient = ops.adaptive_kl(0.1, sequence_kl, target=1.0, horizon=8.0)

    assert float(coefficient) == pytest.approx(0.1 * (1 + 0.2 * 4 / 8))


def test_the_coefficient_of_adaptive_kl_is_carried():
    graph = traced("""
        @fl.program
        def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, kl_coef: fl.Carry = fl.Carry(0.2)):
            rollouts, scores = ops.score("reward", ops.generate(policy, prompts))
            gap = rollouts.logprobs - ops.logprobs(reference, rollouts)
            rewards = ops.token_rewards(scores, rollouts.mask, kl_coef * gap)
            returns = ops.reinforce_plus_plus(rewards, rollouts.mask)
            policy, stats = ops.update(policy, lambda new: ops.token_mean(ops.reinforce(new.logprobs, returns), rollouts.mask), rollouts)
            kl_coef = ops.adaptive_kl(kl_coef, gap.sum(over="token", mask=rollouts.mask), target=6.0, horizon=10_000)
            return policy, kl_coef, stats
    """)

    (made_by,) = (n.op.name for n in graph.nodes if dict(graph.outputs)["kl_coef"] is n.results[0])
    assert made_by == "adaptive_kl"
