import pytest
import torch
from hypothesis import given
from inline_snapshot import snapshot

from flowrl.functional.whitening import moments, whiten
from tests.functional.batches import batches, refusal


@given(batch=batches(least=2))
def test_whitened_tokens_have_mean_0_and_variance_1(batch):
    white = whiten(batch.tokens["a"], batch.mask)

    mean, var = moments(white, batch.mask)
    assert mean.item() == pytest.approx(0, abs=1e-9)
    assert var.item() == pytest.approx(1, abs=1e-3)


def test_a_large_mean_does_not_cancel_in_float32():
    values, mask = torch.tensor([4e4, 4e4 + 1, 4e4 + 2]), torch.ones(3, dtype=torch.bool)

    assert whiten(values, mask).tolist() == pytest.approx([-1, 0, 1])


def test_values_that_are_large_and_close_together_are_told_apart():
    values, mask = torch.tensor([0.125, 0.1875, 0.0]), torch.ones(3, dtype=torch.bool)

    torch.testing.assert_close(whiten(values + 1e6, mask), whiten(values, mask))


@pytest.mark.parametrize("count", [3, 1000, 30001])
@pytest.mark.parametrize("value", [0.1, 1000.1, 1e6 + 0.3])
def test_equal_values_are_whitened_to_0_not_to_the_rounding_of_their_mean(count, value):
    values, mask = torch.full((count,), value), torch.ones(count, dtype=torch.bool)

    assert (whiten(values, mask) == 0).all()
    assert (whiten(values, mask, mode="keep_mean") == values).all()


def test_equal_values_and_a_single_one_are_whitened_to_0_without_eps():
    values, mask = torch.full((3,), 0.1), torch.ones(3, dtype=torch.bool)

    assert not whiten(values, mask, eps=0.0).any()
    assert not whiten(values[:1], mask[:1], ddof=0, eps=0.0).any()
    assert torch.equal(whiten(values, mask, mode="keep_mean", eps=0.0), values)
    assert refusal(whiten, values, mask, mode="scale_only", eps=0.0) == snapshot(
        "equal values have no scale without eps; all are 0.1"
    )


def test_too_few_tokens_and_unknown_modes_are_refused():
    values, mask = torch.ones(2), torch.tensor([True, False])

    assert refusal(whiten, values, mask) == snapshot(
        "a variance with ddof=1 needs more than 1 trained tokens; got 1"
    )
    assert refusal(whiten, values, mask, mode="shift") == snapshot(
        "mode must be standard, keep_mean or scale_only; got 'shift'"
    )


def test_a_variance_that_is_out_of_range_is_refused():
    values = torch.tensor([0.0, 1e30, torch.nan])

    with pytest.raises(ValueError, match=r"is inf: they are from 0 to 1e\+30"):
        whiten(values, torch.tensor([True, True, False]))
    with pytest.raises(ValueError, match="is nan"):
        whiten(values, torch.tensor([True, True, True]))
