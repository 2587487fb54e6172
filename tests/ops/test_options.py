"""Options that don't exist or contradict each other are refused while tracing, at the line."""

import pytest
from inline_snapshot import snapshot

from tests.ir.source import step_refusal
from tests.test_numbers import MATHEMATICS

# fmt: off
REFUSED = {
    "ops.group_advantage(rewards, nonfinite='skip')": snapshot(("group_advantage: `nonfinite` must be 'raise' or 'exclude'; got 'skip'", "help: leave `nonfinite` out for 'raise'")),
    "ops.group_advantage(rewards, eps=-1)": snapshot(('group_advantage: `eps` must be at least 0; got -1', 'help: leave `eps` out for its default')),
    "ops.group_advantage(rewards, ddof=2)": snapshot(('group_advantage: `ddof` must be in [0, 1]; got 2', 'help: leave `ddof` out for its default')),
    "ops.gdpo(rewards, eps=-1.0)": snapshot(('gdpo: `eps` must be at least 0; got -1.0', 'help: leave `eps` out for its default')),
    "ops.reinforce_plus_plus_baseline(rewards, mask, ddof=-1)": snapshot(('reinforce_plus_plus_baseline: `ddof` must be in [0, 1]; got -1', 'help: leave `ddof` out for its default')),
    "ops.gdpo(rewards, weights=[1.0, float('nan')])": snapshot(('gdpo: `weights` must be finite numbers; got [1.0, nan]', 'help: give one a reward')),
    "ops.combine_rewards(rewards, weights=[rewards.mean(), 1.0])": snapshot(('combine_rewards: `weights` must be finite numbers; got [f32[], 1.0]', 'help: give one a reward')),
    "ops.group_advantage(rewards, norm_by_std='no')": snapshot(("group_advantage: `norm_by_std` must be True or False; got 'no'", 'help: leave `norm_by_std` out for True')),
    "ops.aggregate(tokens, mask, denominator='rows')": snapshot(("aggregate: `denominator` must be 'active' or 'all'; got 'rows'", "help: leave `denominator` out for 'active'")),
    "ops.clip(rewards, low=rewards.mean())": snapshot(('clip: `low` must be a number; got f32[]', 'help: options are numbers that are known while tracing, such as hyperparameters')),
    "ops.clip(rewards, 2.0, 1.0)": snapshot(('clip: `low` must not be above `high`; got 2.0 and 1.0', 'help: both bound the elements')),
    "ops.clip_cov(old, old, rewards, mask, high=float('nan'))": snapshot(('clip_cov: `high` must be a number; got nan', 'help: leave `high` out for its default')),
    "ops.logprobs(policy, rollouts, temperature=float('nan'))": snapshot(('logprobs: `temperature` must be above 0; got nan', 'help: leave `temperature` out for its default')),
    "ops.logprobs(policy, rollouts, temperature=0)": snapshot(('logprobs: `temperature` must be above 0; got 0', 'help: leave `temperature` out for its default')),
    "ops.discounted_returns(tokens, mask, gamma=1.1)": snapshot(('discounted_returns: `gamma` must be in [0, 1]; got 1.1', 'help: leave `gamma` out for its default')),
    "ops.gae(tokens, tokens, mask, lam=-0.1)": snapshot(('gae: `lam` must be in [0, 1]; got -0.1', 'help: leave `lam` out for its default')),
    "ops.gae(tokens, tokens, mask, gamma=rewards.mean())": snapshot(('gae: `gamma` must be in [0, 1]; got f32[]', 'help: options are numbers that are known while tracing, such as hyperparameters')),
    "ops.reinforce_plus_plus(tokens, mask, gamma=2)": snapshot(('reinforce_plus_plus: `gamma` must be in [0, 1]; got 2', 'help: leave `gamma` out for its default')),
    "ops.whiten(tokens, mask, mode='shift')": snapshot(("whiten: `mode` must be 'standard' or 'keep_mean' or 'scale_only'; got 'shift'", "help: leave `mode` out for 'standard'")),
    "ops.clipped_surrogate(old, old, rewards, clip=-0.2)": snapshot(('clipped_surrogate: `clip` must be in (0, 1]; got -0.2', 'help: leave `clip` out for its default')),
    "ops.clipped_surrogate(old, old, rewards, clip_high=0)": snapshot(('clipped_surrogate: `clip_high` must be above 0; got 0', 'help: leave `clip_high` out for its default')),
    "ops.clipped_surrogate(old, old, rewards, dual_clip=1)": snapshot(('clipped_surrogate: `dual_clip` must be above 1; got 1', 'help: leave it out, or take 3.0')),
    "ops.sequence_surrogate(old, old, rewards, mask, clip=2)": snapshot(('sequence_surrogate: `clip` must be in (0, 1]; got 2', 'help: leave `clip` out for its default')),
    "ops.cispo(old, old, rewards, clip_high=-1)": snapshot(('cispo: `clip_high` must be above 0; got -1', 'help: leave `clip_high` out for its default')),
    "ops.decoupled(old, old, old, rewards, weight_cap=0)": snapshot(('decoupled: `weight_cap` must be above 0; got 0', 'help: leave `weight_cap` out for its default')),
    "ops.clip_cov(old, old, rewards, mask, fraction=0)": snapshot(('clip_cov: `fraction` must be in (0, 1]; got 0', 'help: leave `fraction` out for its default')),
    "ops.clip_cov(old, old, rewards, mask, low=2, high=1)": snapshot(('clip_cov: `low` must not be above `high`; got 2 and 1', 'help: they are the least and the greatest covariance of a token that may be chosen')),
    "ops.kl_cov(old, old, rewards, mask, fraction=1.5)": snapshot(('kl_cov: `fraction` must be in (0, 1]; got 1.5', 'help: leave `fraction` out for its default')),
    "ops.kl_cov(old, old, rewards, mask, beta=-1)": snapshot(('kl_cov: `beta` must be at least 0; got -1', 'help: leave `beta` out for its default')),
    "ops.kl(old, old, estimator='k4')": snapshot(("kl: `estimator` must be 'k3' or 'k1' or 'k2'; got 'k4'", "help: leave `estimator` out for 'k3'")),
    "ops.kl(old, old, gradient='exact')": snapshot(("kl: `gradient` must be 'direct' or 'unbiased'; got 'exact'", "help: leave `gradient` out for 'direct'")),
    "ops.kl(old, old, old)": snapshot(("kl: `old` weighs the slope of gradient='unbiased'; got gradient='direct'", "help: leave `old` out, or set gradient='unbiased'")),
    "ops.adaptive_kl(0.1, rewards, target=0, horizon=1)": snapshot(('adaptive_kl: `target` must be above 0; got 0', 'help: target is in nats, horizon in samples')),
    "ops.adaptive_kl(0.1, rewards, target=6, horizon=-1)": snapshot(('adaptive_kl: `horizon` must be above 0; got -1', 'help: target is in nats, horizon in samples')),
    "ops.clipped_value(tokens, tokens, tokens, clip=0)": snapshot(('clipped_value: `clip` must be above 0; got 0', 'help: leave `clip` out for its default')),
    "ops.dpo_loss(rewards, beta=0)": snapshot(('dpo_loss: `beta` must be above 0; got 0', 'help: leave `beta` out for its default')),
    "ops.dpo_loss(rewards, label_smoothing=0.5)": snapshot(('dpo_loss: `label_smoothing` must be in [0, 0.5); got 0.5', 'help: leave `label_smoothing` out for its default')),
    "ops.bradley_terry(rewards, margin=-1)": snapshot(('bradley_terry: `margin` must be at least 0; got -1', 'help: leave `margin` out for its default')),
    "ops.importance_weights(old, old, mask, level='word')": snapshot(("importance_weights: `level` must be 'token' or 'sequence' or 'geomean'; got 'word'", "help: leave `level` out for 'token'")),
    "ops.importance_weights(old, old, mask, mode='clip')": snapshot(("importance_weights: `mode` must be 'truncate' or 'mask' or 'geomean_filter_token_truncate'; got 'clip'", "help: leave `mode` out for 'truncate'")),
    "ops.importance_weights(old, old, mask, low=3.0)": snapshot(('importance_weights: `low` must not be above `high`; got 3.0 and 2.0', 'help: both bound the weight')),
    "ops.importance_weights(old, old, mask, mode='mask', high=None)": snapshot(("importance_weights: mode='mask' needs `low` or `high`; got neither", 'help: without it drops nothing')),
    "ops.importance_weights(old, old, mask, level='sequence', mode='geomean_filter_token_truncate')": snapshot(("importance_weights: mode='geomean_filter_token_truncate' weighs tokens; got level='sequence'", "help: leave `level` out for 'token'")),
    "ops.sequence_mean(tokens, mask, denominator='rows')": snapshot(("sequence_mean: `denominator` must be 'active' or 'all'; got 'rows'", "help: leave `denominator` out for 'active'")),
    "ops.horizon_mean(tokens, mask, horizon=0)": snapshot(('horizon_mean: `horizon` must be above 0; got 0', "help: the limit of a sample's length serves, in tokens")),
    "ops.aggregate(tokens, mask, mode='mean')": snapshot(("aggregate: `mode` must be 'token-mean' or 'seq-mean-token-mean' or 'seq-mean-token-sum' or 'seq-mean-token-sum-norm'; got 'mean'", "help: leave `mode` out for 'token-mean'")),
    "ops.aggregate(tokens, mask, mode='token-mean', horizon=9)": snapshot(("aggregate: `horizon` belongs to mode='seq-mean-token-sum-norm', and to no other; got 9 with mode='token-mean'", 'help: give both or neither')),
    "ops.aggregate(tokens, mask, mode='seq-mean-token-sum-norm')": snapshot(("aggregate: `horizon` belongs to mode='seq-mean-token-sum-norm', and to no other; got None with mode='seq-mean-token-sum-norm'", 'help: give both or neither')),
    "ops.overlong_penalty(rewards, max_len=0, cache_len=1)": snapshot(('overlong_penalty: `max_len` must be an integer of at least 1; got 0', 'help: max_len counts tokens')),
    "ops.overlong_penalty(rewards, max_len=8, cache_len=9)": snapshot(('overlong_penalty: `cache_len` must be in [1, max_len]; got 9 with max_len=8', 'help: the penalty grows over the last cache_len of max_len tokens')),
    "ops.minibatches(rollouts, sequences=0)": snapshot(('minibatches: `sequences` must be an integer of at least 1; got 0', 'help: sequences counts samples, not prompts')),
    "ops.minibatches(rollouts, sequences=8, epochs=0)": snapshot(('minibatches: `epochs` must be an integer of at least 1; got 0', 'help: epochs says how often each row is seen')),
    "ops.minibatches(rollouts, sequences=8, by='prompt')": snapshot(("minibatches: `by` must be 'group' or 'sequence'; got 'prompt'", "help: leave `by` out for 'group'")),
    "ops.minibatches(rollouts, sequences=8, balance='token')": snapshot(("minibatches: `balance` must be 'sequences' or 'tokens'; got 'token'", "help: leave `balance` out for 'sequences'")),
    "ops.microbatches(rollouts, max_tokens=0)": snapshot(('microbatches: `max_tokens` must be an integer of at least 1; got 0', 'help: max_tokens counts context and response')),
    "ops.microbatches(rollouts, max_tokens=9, by='tokens')": snapshot(("microbatches: `by` must be 'group' or 'sequence'; got 'tokens'", "help: leave `by` out for 'group'")),
    "ops.pass_at(rewards, k=0)": snapshot(('pass_at: `k` must be an integer of at least 1; got 0', 'help: k counts samples of a prompt')),
    "ops.generate(policy, prompts, stop='')": snapshot(("generate: `stop` must be strings of at least one character; got ''", 'help: write `stop="</answer>"`, or several in a list')),
    "ops.generate(policy, prompts, stop=['a', 3])": snapshot(("generate: `stop` must be strings of at least one character; got ['a', 3]", 'help: write `stop="</answer>"`, or several in a list')),
    "ops.generate(policy, prompts, max_tokens=0)": snapshot(('generate: `max_tokens` must be an integer of at least 1; got 0', 'help: it limits the length of a sample')),
    "ops.generate(policy, prompts, max_tokens=4.0)": snapshot(('generate: `max_tokens` must be an integer of at least 1; got 4.0', 'help: it limits the length of a sample')),
    "ops.generate(policy, prompts, min_tokens=-1)": snapshot(('generate: `min_tokens` must be an integer of at least 0; got -1', 'help: 0 is off')),
    "ops.generate(policy, prompts, min_tokens=rewards.mean())": snapshot(('generate: `min_tokens` must be an integer of at least 0; got f32[]', 'help: 0 is off')),
    "ops.generate(policy, prompts, max_tokens=4, min_tokens=5)": snapshot(('generate: `min_tokens` must be an integer of at least 0, up to max_tokens=4; got 5', 'help: 0 is off')),
}
MISTYPED = {
    "ops.binary_cross_entropy(mask, rewards)": snapshot(("binary_cross_entropy: `logits` must be f32[...]; got bool[prompt'2, sample'2, token'2]", 'help: make it a number: `x.float()`')),
    "ops.bootstrap_values(policy, rewards)": snapshot(("bootstrap_values: `rollouts` must be Rollouts, Examples, Pairs or Record; got f32[prompt'2, sample'2]", 'help: rollouts come from `ops.generate`, data from arguments of the program')),
    "ops.count(rewards)": snapshot(("sum: `mask` must be bool[...]; got f32[prompt'2, sample'2]", 'help: make a condition by comparing: `x > 0`')),
    "ops.leave_one_out(tokens)": snapshot(("leave_one_out: `rewards` must be f32[..., sample]; got f32[prompt'2, sample'2, token'2]", "help: reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`")),
    "ops.policy_filter(tokens)": snapshot(("policy_filter: `rewards` must be f32[..., sample]; got f32[prompt'2, sample'2, token'2]", "help: reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`")),
    "ops.policy_filter(rewards, keep='worst')": snapshot(("policy_filter: `keep` must be 'best_random' or 'best_worst' or 'best'; got 'worst'", "help: leave `keep` out for 'best_random'")),
    "ops.reinforce(mask, rewards)": snapshot(("reinforce: `new` must be f32[..., token]; got bool[prompt'2, sample'2, token'2]", 'help: make it a number: `x.float()`')),
    "ops.sequence_sum_mean(tokens, rewards)": snapshot(("sequence_sum_mean: `mask` must be bool[..., token]; got f32[prompt'2, sample'2]", 'help: make a condition by comparing: `x > 0`')),
    "ops.token_counts(rewards > 0.0)": snapshot(("sum: can reduce f32[prompt'2, sample'2] over its last axis, or over all; got over='token'", "help: reduce the inner axes first: `x.sum(over='sample').sum(...)`")),
    "ops.token_mean(tokens, tokens)": snapshot(("token_mean: `mask` must be bool[..., token]; got f32[prompt'2, sample'2, token'2]", 'help: make a condition by comparing: `x > 0`')),
    "ops.token_rewards(tokens, mask)": snapshot(("token_rewards: `scores` must be f32[...], one a sample; got f32[prompt'2, sample'2, token'2]", 'help: rewards that tokens have already need no place: hand them to `ops.gae` as they are')),
    "ops.usable(mask)": snapshot(("usable: `rewards` must be f32[...]; got bool[prompt'2, sample'2, token'2]", 'help: make it a number: `x.float()`')),
    "ops.watch_gap(mask, old, mask)": snapshot(("logprob_gap: `train` must be f32[..., token]; got bool[prompt'2, sample'2, token'2]", 'help: make it a number: `x.float()`')),
    "ops.watch_kl(old, old, rewards)": snapshot(("sum: `mask` must be bool[..., token]; got f32[prompt'2, sample'2]", 'help: make a condition by comparing: `x > 0`')),
    "ops.watch_rewards(tokens)": snapshot(("zero_variance_share: `rewards` must be f32[..., sample]; got f32[prompt'2, sample'2, token'2]", "help: reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`")),
    "ops.watch_values(tokens, tokens, rewards)": snapshot(("token_mean: `mask` must be bool[..., token]; got f32[prompt'2, sample'2]", 'help: make a condition by comparing: `x > 0`')),
    "ops.watch_weights(tokens, mask, tokens)": snapshot(("effective_sample_size: `mask` must be bool[..., token]; got f32[prompt'2, sample'2, token'2]", 'help: make a condition by comparing: `x > 0`')),
    "ops.microbatches(rewards, max_tokens=9)": snapshot(("microbatches: `batch` must be Rollouts, Examples, Pairs or Record; got f32[prompt'2, sample'2]", 'help: rollouts come from `ops.generate`, data from arguments of the program')),
    "ops.minibatches(prompts, sequences=9)": snapshot(('minibatches: `batch` must be Rollouts, Examples, Pairs or Record; got Prompts', 'help: rollouts come from `ops.generate`, data from arguments of the program')),
    "ops.gae(tokens, rewards, rollouts.tokens)": snapshot(("gae: `mask` must be bool[..., token]; got i32[prompt'2, sample'2, token'2]", 'help: make a condition by comparing: `x > 0`')),
    "ops.opo(tokens, mask)": snapshot(("opo: `rewards` must be f32[..., sample]; got f32[prompt'2, sample'2, token'2]", "help: reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`")),
    "ops.gdpo(rewards)": snapshot(("gdpo: `rewards` must be f32[..., sample, reward]; got f32[prompt'2, sample'2]", 'help: it needs an axis `reward`')),
    "ops.combine_rewards(rewards)": snapshot(("combine_rewards: `rewards` must be f32[..., reward]; got f32[prompt'2, sample'2]", 'help: it needs an axis `reward`')),
    "ops.has_signal(tokens)": snapshot(("has_signal: `rewards` must be f32[..., sample]; got f32[prompt'2, sample'2, token'2]", "help: reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`")),
    "ops.remax(rewards, mask, rewards)": snapshot(("remax: `rewards` must be f32[..., token], received at each token; got f32[prompt'2, sample'2]", "help: put a sample's score on its last token: `ops.token_rewards(scores, rollouts.mask)`")),
    "ops.discounted_returns(1.0, mask)": snapshot(('discounted_returns: `rewards` must be f32[..., token], received at each token; got float', "help: put a sample's score on its last token: `ops.token_rewards(scores, rollouts.mask)`")),
    "ops.optimal_token_baseline(rewards, mask, old, old)": snapshot(("optimal_token_baseline: `rewards` must be f32[..., token], received at each token; got f32[prompt'2, sample'2]", "help: put a sample's score on its last token: `ops.token_rewards(scores, rollouts.mask)`")),
    "ops.importance_weights(old, ops.logprobs(reference, rollouts), mask)": snapshot(('importance_weights: `train` and `rollout` must be of one model, in two versions; got {policy.0 T=1 sampled} and {reference.0 T=1}: a ratio across models is not an importance weight', "help: compare with the sampling policy's: `rollouts.logprobs`; between models use `ops.kl`")),
    "ops.decoupled(old, old, ops.logprobs(reference, rollouts), rewards)": snapshot(('decoupled: `new` and `behaviour` must be of one model, in two versions; got {policy.0 T=1 sampled} and {reference.0 T=1}: a ratio across models is not an importance weight', "help: compare with the sampling policy's: `rollouts.logprobs`; between models use `ops.kl`")),
    "ops.kl(old, old, ops.logprobs(policy, rollouts, temperature=0.5), gradient='unbiased')": snapshot(('kl: `logprobs` and `old` are log-probabilities of differently shaped distributions, {policy.0 T=1 sampled} and {policy.0 T=0.5}: temperature, top_p, top_k and min_tokens must agree', 'help: `ops.logprobs(model, rollouts)` recomputes them at the temperature of the rollouts and without the others: compare two of these')),
    "ops.adaptive_kl(rewards, rewards, target=6, horizon=9)": snapshot(("adaptive_kl: `coefficient` must be f32[]; got f32[prompt'2, sample'2]", 'help: reduce it first: `x.mean()`')),
    "ops.watch_lengths(mask)": snapshot(("watch_lengths: `rollouts` must be Rollouts; got bool[prompt'2, sample'2, token'2]", 'help: rollouts come from `ops.generate`, data from arguments of the program')),
}
# fmt: on


def message(expression):
    return step_refusal(f"""
        old, mask, tokens = rollouts.logprobs, rollouts.mask, rollouts.logprobs * 1.0
        {expression}
        return {{}}
    """)


@pytest.mark.parametrize("expression", REFUSED)
def test_an_option_is_refused_while_tracing(expression):
    problem, where, *_, hint = message(expression).splitlines()

    assert (problem, hint) == REFUSED[expression]
    assert where == "  example.py:8"


@pytest.mark.parametrize("expression", MISTYPED)
def test_an_argument_of_another_type_is_refused_while_tracing(expression):
    problem, where, *_, hint = message(expression).splitlines()

    assert (problem, hint) == MISTYPED[expression]
    assert where == "  example.py:8"


def test_a_contradiction_says_what_came_where_and_what_to_do():
    text = message("ops.kl(old, old, old)")

    assert text == snapshot("""\
kl: `old` weighs the slope of gradient='unbiased'; got gradient='direct'
  example.py:8
    8 |     ops.kl(old, old, old)
            ^^^^^^^^^^^^^^^^^^^^^
help: leave `old` out, or set gradient='unbiased'\
""")


def test_every_op_of_the_mathematics_refuses_something():
    refused = {
        name for name in MATHEMATICS for text in REFUSED | MISTYPED if f"ops.{name}(" in text
    }

    assert sorted(refused) == MATHEMATICS
