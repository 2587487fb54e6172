"""An op of the language is its function of padded tensors, group by group."""

import pytest
import torch
from hypothesis import given, settings

from flowrl import ops
from flowrl.functional import (
    advantages,
    covariance,
    divergences,
    filters,
    group_advantages,
    importance,
    lengths,
    losses,
    metrics,
    preferences,
    reductions,
    rewards,
    surrogate,
    token_baseline,
    whitening,
)
from tests.functional.batches import batches
from tests.ops.language import POLICY, Language, elements

CLIPS = {"clip": 0.1, "clip_high": 0.3}
CLIPPED = {**CLIPS, "dual_clip": 1.5}
WEIGHTS = {"level": "sequence", "mode": "mask", "low": 0.5, "high": 2.0}
ONE_SIDED = {"clip": None, "clip_high": 0.2}

# op: what the language says, what the padded function says. t: f[token] and r: f[sample] by name.
# fmt: off
TOKENS = {
    "discounted_returns": (
        lambda t, r, m: ops.discounted_returns(t.a, m, gamma=0.9),
        lambda t, r, m, g: advantages.discounted_returns(t["a"], m, gamma=0.9)),
    "gae": (
        lambda t, r, m: ops.gae(t.a, t.b, m, gamma=0.9, lam=0.8)[0],
        lambda t, r, m, g: advantages.gae(t["a"], t["b"], m, gamma=0.9, lam=0.8)[0]),
    "gae with bootstrap": (
        lambda t, r, m: ops.gae(t.a, t.b, m, r.s)[1],
        lambda t, r, m, g: advantages.gae(t["a"], t["b"], m, r["s"])[1]),
    "token_rewards": (
        lambda t, r, m: ops.token_rewards(r.s, m, t.a),
        lambda t, r, m, g: advantages.token_rewards(r["s"], m, t["a"])),
    "remax": (
        lambda t, r, m: ops.remax(t.a, m, r.s),
        lambda t, r, m, g: advantages.remax(t["a"], m, r["s"])),
    "reinforce_plus_plus": (
        lambda t, r, m: ops.reinforce_plus_plus(t.a, m, gamma=0.9),
        lambda t, r, m, g: advantages.reinforce_plus_plus(t["a"], m, gamma=0.9)),
    "reinforce_plus_plus_baseline": (
        lambda t, r, m: ops.reinforce_plus_plus_baseline(r.s, m),
        lambda t, r, m, g: advantages.reinforce_plus_plus_baseline(r["s"], m, groups=g)),
    "optimal_token_baseline": (
        lambda t, r, m: ops.optimal_token_baseline(t.a, m, t.b, t.c),
        lambda t, r, m, g: token_baseline.optimal_token_baseline(t["a"], m, t["b"], t["c"], groups=g)),
    "whiten": (
        lambda t, r, m: ops.whiten(t.a, m, mode="scale_only", ddof=0),
        lambda t, r, m, g: whitening.whiten(t["a"], m, mode="scale_only", ddof=0)),
    "clipped_surrogate": (
        lambda t, r, m: ops.clipped_surrogate(t.a, t.b, t.c, **CLIPPED),
        lambda t, r, m, g: surrogate.clipped_surrogate(t["a"], t["b"], t["c"], **CLIPPED)),
    "clipped_surrogate of samples": (
        lambda t, r, m: ops.clipped_surrogate(t.a, t.b, r.s),
        lambda t, r, m, g: surrogate.clipped_surrogate(t["a"], t["b"], r["s"][:, None])),
    "sequence_surrogate": (
        lambda t, r, m: ops.sequence_surrogate(t.a, t.b, t.c, m, **CLIPS),
        lambda t, r, m, g: surrogate.sequence_surrogate(t["a"], t["b"], t["c"], m, **CLIPS)),
    "cispo": (
        lambda t, r, m: ops.cispo(t.a, t.b, t.c, **ONE_SIDED),
        lambda t, r, m, g: losses.cispo(t["a"], t["b"], t["c"], **ONE_SIDED)),
    "decoupled": (
        lambda t, r, m: ops.decoupled(t.a, t.b, t.c, t.d, weight_cap=1.5),
        lambda t, r, m, g: surrogate.decoupled(t["a"], t["b"], t["c"], t["d"], weight_cap=1.5)),
    "reinforce": (
        lambda t, r, m: ops.reinforce(t.a, r.s),
        lambda t, r, m, g: losses.reinforce(t["a"], r["s"][:, None])),
    "kl_cov": (
        lambda t, r, m: ops.kl_cov(t.a, t.b, t.c, m, fraction=0.3),
        lambda t, r, m, g: covariance.kl_cov(t["a"], t["b"], t["c"], m, fraction=0.3)),
    "clip_cov": (  # all candidates, so that the draw doesn't show
        lambda t, r, m: ops.clip_cov(t.a, t.b, t.c, m, fraction=1.0, low=0.1),
        lambda t, r, m, g: covariance.clip_cov(t["a"], t["b"], t["c"], m, fraction=1.0, low=0.1)),
    "clipped_value": (
        lambda t, r, m: ops.clipped_value(t.a, t.b, t.c, clip=0.1),
        lambda t, r, m, g: losses.clipped_value(t["a"], t["b"], t["c"], clip=0.1)),
    "kl": (
        lambda t, r, m: ops.kl(t.a, t.b, t.c, estimator="k1", gradient="unbiased"),
        lambda t, r, m, g: divergences.kl(t["a"], t["b"], t["c"], estimator="k1", gradient="unbiased")),
    "importance_weights": (
        lambda t, r, m: ops.importance_weights(t.a, t.b, m, **WEIGHTS)[0],
        lambda t, r, m, g: importance.importance_weights(t["a"], t["b"], m, **WEIGHTS)[0]),
    "importance_weights keep": (
        lambda t, r, m: ops.importance_weights(t.a, t.b, m, **WEIGHTS)[1],
        lambda t, r, m, g: importance.importance_weights(t["a"], t["b"], m, **WEIGHTS)[1]),
}
SAMPLES = {
    "group_advantage": (
        lambda t, r, m: ops.group_advantage(r.s, ddof=0),
        lambda t, r, m, g: group_advantages.group_advantage(r["s"], ddof=0, groups=g)),
    "leave_one_out": (
        lambda t, r, m: ops.leave_one_out(r.s),
        lambda t, r, m, g: group_advantages.leave_one_out(r["s"], groups=g)),
    "opo": (
        lambda t, r, m: ops.opo(r.s, m),
        lambda t, r, m, g: group_advantages.opo(r["s"], m.sum(-1), groups=g)),
    "overlong_penalty": (
        lambda t, r, m: ops.overlong_penalty(ops.token_counts(m), max_len=4, cache_len=3),
        lambda t, r, m, g: lengths.overlong_penalty(m.sum(-1), max_len=4, cache_len=3)),
    "usable": (lambda t, r, m: ops.usable(r.s), lambda t, r, m, g: rewards.usable(r["s"])),
    "has_signal": (
        lambda t, r, m: ops.has_signal(r.s),
        lambda t, r, m, g: filters.has_signal(r["s"], groups=g)),
}
NUMBERS = {
    "token_mean": (
        lambda t, r, m: ops.token_mean(t.a, m),
        lambda t, r, m, g: reductions.token_mean(t["a"], m)),
    "sequence_mean": (
        lambda t, r, m: ops.sequence_mean(t.a, m, denominator="all"),
        lambda t, r, m, g: reductions.sequence_mean(t["a"], m, denominator="all")),
    "sequence_sum_mean": (
        lambda t, r, m: ops.sequence_sum_mean(t.a, m),
        lambda t, r, m, g: reductions.sequence_sum_mean(t["a"], m)),
    "horizon_mean": (
        lambda t, r, m: ops.horizon_mean(t.a, m, horizon=7),
        lambda t, r, m, g: reductions.horizon_mean(t["a"], m, horizon=7)),
    "aggregate": (
        lambda t, r, m: ops.aggregate(t.a, m, mode="seq-mean-token-sum-norm", horizon=7),
        lambda t, r, m, g: reductions.aggregate(t["a"], m, mode="seq-mean-token-sum-norm", horizon=7)),
    "adaptive_kl": (
        lambda t, r, m: ops.adaptive_kl(0.2, r.s, target=1.0, horizon=9.0),
        lambda t, r, m, g: divergences.adaptive_kl(
            torch.tensor(0.2), r["s"], target=1.0, horizon=9.0)),
    "explained_variance": (
        lambda t, r, m: ops.watch_values(t.a, t.b, m)["explained_variance"],
        lambda t, r, m, g: metrics.explained_variance(t["a"], t["b"], m)),
    "effective_sample_size": (
        lambda t, r, m: ops.watch_weights(t.a, m, m)["effective_sample_size"],
        lambda t, r, m, g: metrics.effective_sample_size(t["a"], m)),
    "logprob_gap": (
        lambda t, r, m: ops.watch_gap(t.a, t.b, m)["logprob_gap_mean"],
        lambda t, r, m, g: metrics.logprob_gap(t["a"], t["b"], m)[0]),
    "zero_variance": (
        lambda t, r, m: ops.watch_rewards(r.s)["reward_zero_variance"],
        lambda t, r, m, g: metrics.zero_variance_share(r["s"], groups=g)),
    "quantiles": (
        lambda t, r, m: ops.watch_rewards(r.s)["reward_p90"],
        lambda t, r, m, g: metrics.quantiles(r["s"])[2]),
}
# fmt: on
MEANINGS = TOKENS | SAMPLES | NUMBERS


class Named:
    """Values by attribute."""

    def __init__(self, values):
        self.__dict__.update(values)


@pytest.mark.parametrize("meaning", MEANINGS.values(), ids=MEANINGS)
@settings(max_examples=6)
@given(batch=batches(least=2))
def test_an_op_is_its_function(meaning, batch):
    said, expected = meaning
    language = Language(batch)
    tokens = {name: language.tokens(x) for name, x in batch.tokens.items()}
    samples = {name: language.samples(x) for name, x in batch.rows.items()}

    result = said(Named(tokens), Named(samples), language.tokens(batch.mask))

    padded = {name: language.padded(x) for name, x in batch.tokens.items()}
    right = expected(padded, batch.rows, language.padded(batch.mask, False), language.groups)
    torch.testing.assert_close(
        elements(result).double(), language.packed(right).double(), rtol=1e-6, atol=1e-6
    )


@settings(max_examples=20)
@given(batch=batches())
def test_rewards_of_several_functions_are_combined_by_sample(batch):
    language = Language(batch)
    both = torch.stack([batch.rows["r"], batch.rows["s"]], -1)
    named = language.rewards(both)

    total = ops.combine_rewards(named, weights=[1.0, 0.5])
    decoupled = ops.gdpo(named, weights=[1.0, 0.5])

    assert torch.equal(elements(total), rewards.combine_rewards(both, weights=[1.0, 0.5]))
    right = group_advantages.gdpo(both, weights=[1.0, 0.5], groups=language.groups)
    torch.testing.assert_close(elements(decoupled), right)


def test_pairs_are_two_samples_of_a_prompt(pairs):
    scores = torch.tensor([2.0, 1.0, 0.0, 3.0])

    dpo = ops.dpo_loss(pairs.samples(scores), beta=0.5, label_smoothing=0.1)
    preferred = ops.bradley_terry(pairs.samples(scores), margin=0.5)

    pair = scores.view(2, 2)
    right = preferences.dpo_loss(pair, beta=0.5, label_smoothing=0.1)
    torch.testing.assert_close(elements(dpo), right)
    right = preferences.bradley_terry(pair, margin=0.5)
    torch.testing.assert_close(elements(preferred), right)


@settings(max_examples=20)
@given(batch=batches(least=1))
def test_metrics_are_over_all_tokens_and_samples(batch):
    language = Language(batch)
    new, old = (language.tokens(batch.tokens[name], POLICY) for name in "ab")
    mask = language.tokens(batch.mask)

    measured = ops.watch_kl(new, old, mask) | ops.watch_rewards(language.samples(batch.rows["r"]))

    gap = batch.tokens["a"] - batch.tokens["b"]
    k3 = (-gap).expm1() + gap
    assert float(measured["kl_token"]) == pytest.approx(k3[batch.mask].mean().item())
    assert float(measured["kl_sequence"]) == pytest.approx(
        gap[batch.mask].sum().item() / len(batch.lengths), abs=1e-9
    )
    assert float(measured["reward_mean"]) == pytest.approx(batch.rows["r"].mean().item())
