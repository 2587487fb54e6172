import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.functional.advantages import (
    discounted_returns,
    gae,
    reinforce_plus_plus,
    remax,
    rows_without_tokens,
    token_rewards,
)
from flowrl.functional.refusals import SampleRefusedError
from flowrl.functional.token_baseline import optimal_token_baseline
from tests.functional.batches import batches, refusal

shares = st.floats(0, 1)


def by_definition(rewards, values, after, gamma, lam):
    """Return the advantages of one row of trained tokens, one equation a token."""
    advantages, following, ahead = [], after, 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        ahead = reward + gamma * following - value + gamma * lam * ahead
        following = value
        advantages.insert(0, ahead)
    return advantages


@given(batch=batches(), gamma=shares, lam=shares)
def test_gae_is_its_recursion_over_the_trained_tokens(batch, gamma, lam):
    rewards, values = batch.tokens["a"], batch.tokens["b"]

    advantages, returns = gae(
        rewards, values, batch.mask, batch.rows["s"], gamma=gamma, lam=lam, lengths=batch.lengths
    )

    for row, after in enumerate(batch.rows["s"].tolist()):
        parts = [x.split(batch.lengths.tolist())[row] for x in (rewards, values, batch.mask)]
        kept = [x[parts[2]].tolist() for x in parts[:2]]
        want = torch.tensor(by_definition(*kept, after, gamma, lam), dtype=torch.float64)
        got = advantages.split(batch.lengths.tolist())[row][parts[2]]
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(returns, torch.where(batch.mask, advantages + values, 0.0))


@given(batch=batches(), gamma=shares)
def test_gae_with_lambda_1_is_the_return_minus_the_value(batch, gamma):
    rewards, values = batch.tokens["a"], batch.tokens["b"]

    _, returns = gae(rewards, values, batch.mask, gamma=gamma, lam=1.0, lengths=batch.lengths)

    want = discounted_returns(rewards, batch.mask, gamma=gamma, lengths=batch.lengths)
    torch.testing.assert_close(returns, want, rtol=1e-10, atol=1e-12)


@given(batch=batches(least=1))
def test_advantages_of_a_row_do_not_depend_on_the_rows_beside_it(batch):
    whole = discounted_returns(batch.tokens["a"], batch.mask, gamma=0.97, lengths=batch.lengths)

    sizes = batch.lengths.tolist()
    alone = [
        discounted_returns(x, mask, gamma=0.97, lengths=torch.tensor([len(x)]))
        for x, mask in zip(batch.tokens["a"].split(sizes), batch.mask.split(sizes), strict=True)
    ]
    assert torch.equal(torch.cat(alone), whole)


def test_the_return_of_a_long_row_is_right_in_float32():
    length = 30_000
    rewards, mask = torch.ones(1, length), torch.ones(1, length, dtype=torch.bool)

    returns = discounted_returns(rewards, mask, gamma=0.999)

    want = (1 - 0.999 ** torch.arange(length, 0, -1, dtype=torch.float64)) / (1 - 0.999)
    torch.testing.assert_close(returns[0].double(), want, rtol=1e-5, atol=0)


@given(batch=batches())
def test_the_sum_of_token_rewards_is_the_score_of_rows_with_tokens(batch):
    scores = batch.rows["s"]

    rewards = token_rewards(scores, batch.mask, lengths=batch.lengths)

    empty = rows_without_tokens(batch.mask, lengths=batch.lengths)
    want = scores.clone()
    want[empty] = 0.0
    sums = torch.stack([row.sum() for row in rewards.split(batch.lengths.tolist())])
    torch.testing.assert_close(sums, want)


def test_a_score_that_is_not_finite_is_refused_where_it_would_be_trained():
    mask = torch.tensor([[True, True], [False, False], [True, False]])
    nan = torch.tensor([1.0, float("nan"), 2.0])

    assert token_rewards(nan, mask).tolist() == [[0, 1], [0, 0], [2, 0]]
    assert refusal(token_rewards, nan.roll(1), mask) == snapshot(
        "rewards must be finite numbers; sample 2 has nan (1 of 3 samples are not finite)"
    )


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_at_a_trained_token_is_refused_with_its_row(bad):
    mask, zeros = torch.tensor([[True, True], [False, True]]), torch.zeros(2, 2)
    masked, trained = zeros.clone(), zeros.clone()
    masked[1, 0], trained[1, 1] = bad, bad
    estimators = [
        lambda x: discounted_returns(x, mask),
        lambda x: gae(x, zeros, mask, gamma=0.0),
        lambda x: gae(zeros, x, mask),
        lambda x: gae(zeros, zeros, mask, x[:, 1]),
        lambda x: remax(x, mask, zeros[:, 0]),
        lambda x: remax(zeros, mask, x[:, 1]),
        lambda x: reinforce_plus_plus(x, mask),
        lambda x: optimal_token_baseline(x, mask, zeros - 1, zeros + 0.5, groups=mask[:, 1]),
    ]

    for estimate in estimators:
        estimate(masked)
        with pytest.raises(SampleRefusedError, match=f"must be finite .* has {bad}") as error:
            estimate(trained)
        assert error.value.sample == 1


def test_the_score_lands_on_the_last_trained_token_after_the_penalty():
    mask = torch.tensor([[True, True, False], [True, False, True]])
    penalty = torch.tensor([[0.1, 0.2, 9.0], [0.3, 9.0, 0.4]])

    rewards = token_rewards(torch.tensor([1.0, 2.0]), mask, penalty)

    want = torch.tensor([[-0.1, 0.8, 0.0], [-0.3, 0.0, 1.6]])
    torch.testing.assert_close(rewards, want)


@given(batch=batches(least=1))
def test_remax_is_0_where_the_sample_earned_what_the_greedy_answer_did(batch):
    rewards = token_rewards(batch.rows["s"], batch.mask, lengths=batch.lengths)

    advantages = remax(rewards, batch.mask, batch.rows["s"], lengths=batch.lengths)

    assert advantages.abs().max() == 0


@given(batch=batches(least=2), scale=st.floats(0.5, 8))
def test_reinforce_plus_plus_is_free_of_the_unit_of_rewards(batch, scale):
    rewards = 1e3 * batch.tokens["a"]

    one = reinforce_plus_plus(rewards, batch.mask, lengths=batch.lengths)

    scaled = reinforce_plus_plus(scale * rewards, batch.mask, lengths=batch.lengths)
    torch.testing.assert_close(scaled, one, rtol=1e-6, atol=1e-6)
