"""Losses, their gradients and importance weights are what their formulas say, in numpy."""

from itertools import product

import numpy as np
import pytest
import torch

from flowrl.functional.importance import importance_weights
from flowrl.functional.reductions import aggregate, aggregate_divisor, aggregate_total
from flowrl.functional.surrogate import clipped_surrogate, sequence_surrogate
from tests.functional import formulas

MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
CLIPS = ((0.2, 0.2, None), (0.1, 0.5, None), (0.2, 0.28, 1.5), (1.0, 9.0, 3.0))
WEIGHTS = (
    *product(("token", "sequence", "geomean"), ("truncate", "mask")),
    ("token", "geomean_filter_token_truncate"),
)
BOUNDS = ((0.5, 2.0), (None, 1.5), (0.9, None))
TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-11},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
}
precisions = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def batch(seed):
    """Return a mask of gaps, with a row of no token and a row of one, and three numbers a token."""
    draw = np.random.default_rng(seed)
    mask = draw.random((5, 7)) < 0.6
    mask[1], mask[2] = False, np.arange(7) == 6
    return mask, draw.normal(size=(3, 5, 7))


def tensors(mask, dtype, *arrays):
    """Return torch's form of arrays, with NaN wherever nothing is trained."""
    return [torch.tensor(np.where(mask, x, np.nan), dtype=dtype) for x in arrays]


def assert_near(found, expected, dtype):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype), **TOLERANCE[dtype])


@precisions
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("low", "high", "dual"), CLIPS)
def test_the_clipped_surrogate_and_its_gradient_are_their_formula(low, high, dual, mode, dtype):
    mask, (new, old, advantages) = batch(0)
    horizon = 9 if mode == "seq-mean-token-sum-norm" else None
    losses, slope = formulas.clipped(new, old, advantages, low=low, high=high, dual=dual)

    given = tensors(mask, dtype, new, old, advantages)
    logprobs = given[0].requires_grad_()
    per_token = clipped_surrogate(
        *given, torch.tensor(mask), clip=low, clip_high=high, dual_clip=dual
    )
    loss = aggregate(per_token, torch.tensor(mask), mode=mode, horizon=horizon)
    (gradient,) = torch.autograd.grad(loss, logprobs)

    share = formulas.shares(mask, mode, horizon=horizon)
    assert_near(loss.detach(), (share * losses).sum(), dtype)
    assert_near(gradient, share * slope, dtype)


@precisions
@pytest.mark.parametrize("denominator", ["active", "all"])
def test_gspo_and_its_gradient_are_their_formula(denominator, dtype):
    mask, (new, old, advantages) = batch(1)
    losses, slope = formulas.sequences(new, old, advantages, mask, low=0.1, high=0.3)

    given = tensors(mask, dtype, new, old, advantages)
    logprobs, trained = given[0].requires_grad_(), torch.tensor(mask)
    per_token = sequence_surrogate(*given, trained, clip=0.1, clip_high=0.3)
    mode = "seq-mean-token-mean"
    loss = aggregate(per_token, trained, mode=mode, denominator=denominator)
    (gradient,) = torch.autograd.grad(loss, logprobs)

    rows = mask.any(1).sum() if denominator == "active" else len(mask)
    assert_near(loss.detach(), losses[mask.any(1)].sum() / rows, dtype)
    assert_near(gradient, slope / rows, dtype)


@precisions
@pytest.mark.parametrize(("low", "high"), BOUNDS)
@pytest.mark.parametrize(("level", "mode"), WEIGHTS)
def test_importance_weights_are_their_formula(level, mode, low, high, dtype):
    mask, (train, rollout, _) = batch(2)
    options = {"level": level, "mode": mode, "low": low, "high": high}

    found, keep = importance_weights(
        *tensors(mask, dtype, train, rollout), torch.tensor(mask), **options
    )

    expected, kept = formulas.weights(train, rollout, mask, **options)
    assert_near(found, expected, dtype)
    assert keep.tolist() == kept.tolist()


@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("rejected", ["counted", "left out"])
@pytest.mark.parametrize(("level", "low"), [("token", 0.7), ("sequence", 0.5), ("geomean", 0.9)])
def test_a_corrected_loss_counts_rejected_tokens_where_it_is_reduced(level, low, mode, rejected):
    mask, (new, old, advantages) = batch(3)
    rollout = old + 0.5 * np.random.default_rng(4).normal(size=old.shape)
    options = {"level": level, "mode": "mask", "low": low, "high": 1 / low}
    weights, keep = formulas.weights(old, rollout, mask, **options)
    losses, slope = formulas.clipped(new, old, advantages, low=0.2, high=0.28)

    given = tensors(mask, torch.float64, new, old, advantages)
    logprobs, trained = given[0].requires_grad_(), torch.tensor(mask)
    found, kept = importance_weights(
        *tensors(mask, torch.float64, old, rollout), trained, **options
    )
    per_token = found * clipped_surrogate(*given, trained, clip=0.2, clip_high=0.28)
    counted = trained if rejected == "counted" else kept
    loss = aggregate(per_token, counted, mode=mode)
    (gradient,) = torch.autograd.grad(loss, logprobs)

    share = formulas.shares(mask if rejected == "counted" else keep, mode)
    assert mask.sum() > keep.sum() > 0
    assert_near(loss.detach(), (share * weights * losses).sum(), torch.float64)
    assert_near(gradient, share * weights * slope, torch.float64)


@pytest.mark.parametrize(
    "layout", [[[0, 1, 2, 3, 4]], [[0, 3], [1], [4, 2]], [[4], [], [0, 1, 2, 3]]]
)
@pytest.mark.parametrize("mode", MODES)
def test_shares_of_microbatches_add_up_whatever_row_they_hold(mode, layout):
    mask, (losses, *_) = batch(5)
    horizon = 11 if mode == "seq-mean-token-sum-norm" else None
    (values,), trained = tensors(mask, torch.float64, losses), torch.tensor(mask)

    divisor = aggregate_divisor(trained, mode=mode, horizon=horizon)
    parts = [aggregate_total(values[rows], trained[rows], mode=mode) for rows in layout if rows]

    share = formulas.shares(mask, mode, horizon=horizon)
    assert_near(sum(parts) / divisor, (share * losses).sum(), torch.float64)
