from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.functional import metrics
from tests.functional.batches import batches, refusal


@given(correct=st.lists(st.booleans(), min_size=1, max_size=6), k=st.integers(1, 6))
def test_pass_at_k_is_the_share_of_draws_with_a_correct_one(correct, k):
    k = min(k, len(correct))

    estimate = metrics.pass_at_k(torch.tensor([correct]), k=k)

    draws = [any(draw) for draw in combinations(correct, k)]
    assert estimate.item() == pytest.approx(sum(draws) / len(draws))


def test_pass_at_k_needs_k_samples():
    message = refusal(metrics.pass_at_k, torch.ones(2, 3, dtype=torch.bool), k=4)

    assert message == snapshot("k must be in [1, samples of a group = 3]; got 4")


@given(batch=batches())
def test_metrics_of_equal_policies_say_so(batch):
    same, mask = batch.tokens["a"], batch.mask

    assert metrics.approximate_kl(same, same, mask) == 0
    assert [x.item() for x in metrics.ratio_extremes(same, same, mask)] == [1, 1]
    assert [x.item() for x in metrics.logprob_gap(same, same, mask)] == [0, 0]


@given(batch=batches(least=1), junk=st.sampled_from([float("nan"), float("inf"), 500.0]))
def test_masked_tokens_are_in_no_metric(batch, junk):
    a, b, mask = batch.tokens["a"], batch.tokens["b"], batch.mask
    dirty = batch.dirty(junk).tokens

    for name in ("approximate_kl", "ratio_extremes", "explained_variance", "logprob_gap"):
        metric = getattr(metrics, name)
        torch.testing.assert_close(
            metric(dirty["a"], dirty["b"], mask), metric(a, b, mask), rtol=0, atol=0
        )


@given(batch=batches(least=1))
def test_the_effective_sample_size_is_between_one_token_and_all(batch):
    weights = batch.tokens["a"].exp()

    share = metrics.effective_sample_size(weights, batch.mask)

    assert 1 / batch.mask.sum() - 1e-12 <= share <= 1 + 1e-12
    assert metrics.effective_sample_size(torch.ones_like(weights), batch.mask) == 1


@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_the_effective_sample_size_has_no_unit(unit):
    weights, mask = unit * torch.tensor([1.0, 1.0, 0.0]), torch.ones(3, dtype=torch.bool)

    assert metrics.effective_sample_size(weights, mask) == pytest.approx(2 / 3)
    assert metrics.effective_sample_size(weights[2:], mask[2:]) == 0


def test_a_perfect_critic_explains_all_and_a_constant_one_nothing():
    returns, mask = torch.tensor([1.0, 2.0, 4.0]), torch.ones(3, dtype=torch.bool)

    assert metrics.explained_variance(returns, returns, mask) == 1
    assert metrics.explained_variance(torch.full((3,), 9.0), returns, mask) == 0
    assert metrics.explained_variance(returns, torch.ones(3), mask) == 0


def test_there_is_nothing_to_explain_in_equal_returns_whatever_the_rounding_of_their_mean():
    returns, mask = torch.full((8,), 0.1), torch.ones(8, dtype=torch.bool)

    assert metrics.explained_variance(torch.arange(8.0), returns, mask) == 0


def test_the_gap_is_taken_over_trained_tokens_that_this_version_sampled():
    new, sampled = torch.zeros(5), torch.tensor([0.1, 0.9, 0.5, 0.2, 0.7])
    mask = torch.tensor([True, False, True, True, True])
    versions, lengths = torch.tensor([3, 2, 3]), torch.tensor([2, 1, 2])

    gaps = [
        metrics.sampled_gap(new, sampled, mask, versions, torch.tensor(now), lengths=lengths)
        for now in (2, 3, 4)
    ]

    assert [most.item() for _, most in gaps] == pytest.approx([0.5, 0.7, 0.0])
    assert [mean.item() for mean, _ in gaps] == pytest.approx([0.5, 1.0 / 3, 0.0])


def test_groups_of_equal_rewards_are_counted():
    rewards = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.5, 0.5], [0.0, 0.5]])

    assert metrics.zero_variance_share(rewards) == 0.5


def test_quantiles_are_of_the_finite_elements():
    x = torch.tensor([0.0, 1.0, 2.0, float("nan")])

    assert metrics.quantiles(x, at=(0.0, 0.5, 1.0)) == (0.0, 1.0, 2.0)
    assert metrics.quantiles(x[3:], at=(0.5,)) == (0.0,)
