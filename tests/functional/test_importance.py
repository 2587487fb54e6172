import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.functional.importance import importance_weights, staleness
from tests.functional.batches import batches, refusal

every_level = pytest.mark.parametrize("level", ["token", "sequence", "geomean"])


@every_level
@given(batch=batches())
def test_equal_log_probabilities_weigh_1(level, batch):
    same = batch.tokens["a"]

    weights, keep = importance_weights(same, same, batch.mask, level=level, lengths=batch.lengths)

    assert torch.equal(weights, batch.mask.to(weights.dtype))
    assert torch.equal(keep, batch.mask)


@every_level
@given(batch=batches())
def test_truncated_weights_stay_in_their_bounds_and_lose_no_token(level, batch):
    train, rollout = 3 * batch.tokens["a"], batch.tokens["b"]

    weights, keep = importance_weights(
        train, rollout, batch.mask, level=level, low=0.5, high=2.0, lengths=batch.lengths
    )

    assert torch.equal(keep, batch.mask)
    assert ((weights[keep] >= 0.5) & (weights[keep] <= 2.0)).all()


@every_level
@given(batch=batches())
def test_masked_weights_are_in_their_bounds_or_0(level, batch):
    train, rollout = 3 * batch.tokens["a"], batch.tokens["b"]

    weights, keep = importance_weights(
        train, rollout, batch.mask, level=level, mode="mask", low=0.5, lengths=batch.lengths
    )

    assert (weights[~keep] == 0).all()
    assert ((weights[keep] >= 0.5) & (weights[keep] <= 2.0)).all()


def test_the_weight_of_a_sequence_is_the_product_of_its_tokens():
    gap, mask = torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[True, False, True]])

    product, _ = importance_weights(gap, torch.zeros(1, 3), mask, level="sequence", high=None)

    torch.testing.assert_close(product, torch.tensor([[0.4, 0.0, 0.4]]).exp() * mask)


def test_the_geometric_weight_of_a_sequence_is_the_mean_of_its_tokens_in_logs():
    gap, mask = torch.tensor([[0.1, 0.2, 0.3]]), torch.tensor([[True, False, True]])

    mean, _ = importance_weights(gap, torch.zeros(1, 3), mask, level="geomean", high=None)

    torch.testing.assert_close(mean, torch.tensor([[0.2, 0.0, 0.2]]).exp() * mask)


@given(
    rows=st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1), max_lag=st.integers(0, 9)
)
def test_a_row_is_as_stale_as_its_oldest_token(rows, max_lag):
    versions = torch.tensor([version for row in rows for version in row], dtype=torch.int64)
    lengths = torch.tensor([len(row) for row in rows])

    lag, accept = staleness(versions, current=9, max_lag=max_lag, lengths=lengths)

    assert lag.tolist() == [9 - min(row, default=9) for row in rows]
    assert accept.tolist() == [x <= max_lag for x in lag.tolist()]


def test_a_token_of_a_version_to_come_is_not_stale_in_either_form():
    versions, lengths = torch.tensor([[5, 6], [4, 3]]), torch.tensor([2, 2])

    padded, _ = staleness(versions, current=4, max_lag=1)
    packed, _ = staleness(versions.flatten(), current=4, max_lag=1, lengths=lengths)

    assert padded.tolist() == packed.tolist() == [-1, 1]


def test_staleness_reads_padded_rows_where_the_mask_says():
    versions, mask = torch.tensor([[3, 0], [5, 4]]), torch.tensor([[True, False], [True, True]])

    lag, _ = staleness(versions, mask, current=6, max_lag=2)

    assert lag.tolist() == [3, 2]


def test_rows_without_tokens_are_of_the_version_in_training_in_either_form():
    none = torch.zeros(0, dtype=torch.int64)

    padded = staleness(none.view(2, 0), current=6, max_lag=0)

    packed = staleness(none, current=6, max_lag=0, lengths=torch.tensor([0, 0]))
    for lag, accept in (padded, packed):
        assert lag.tolist() == [0, 0]
        assert accept.tolist() == [True, True]


def test_a_log_probability_that_is_not_finite_is_named_by_row_and_token():
    good, bad = torch.zeros(5), torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf])
    mask, lengths = torch.ones(5, dtype=torch.bool), torch.tensor([2, 0, 3])

    packed = refusal(importance_weights, good, bad, mask, lengths=lengths)

    padded = refusal(importance_weights, bad[None], good[None], mask[None])
    assert packed == snapshot(
        "rollout log-probabilities must be finite on trained tokens; row 2 token 2 has -inf"
    )
    assert padded == snapshot(
        "train log-probabilities must be finite on trained tokens; row 0 token 4 has -inf"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"level": "row"},
            snapshot("level must be one of token, sequence, geomean; got 'row'"),
        ),
        (
            {"mode": "clip"},
            snapshot(
                "mode must be one of truncate, mask, geomean_filter_token_truncate; got 'clip'"
            ),
        ),
        (
            {"mode": "geomean_filter_token_truncate", "level": "sequence"},
            snapshot(
                "mode geomean_filter_token_truncate weighs tokens: "
                "level must be \"token\"; got 'sequence'"
            ),
        ),
        (
            {"mode": "mask", "high": None},
            snapshot("mode mask drops nothing without a bound: give low or high"),
        ),
        ({"low": 3.0}, snapshot("low must not be above high; got low=3.0 high=2.0")),
    ],
)
def test_options_that_do_not_exist_or_contradict_are_refused(options, message):
    x, mask = torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)

    assert refusal(importance_weights, x, x, mask, **options) == message
