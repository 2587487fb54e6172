"""Laws of every function of tokens: masked positions are inert, packed equals padded."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrl.functional import advantages as A
from flowrl.functional import (
    covariance,
    divergences,
    importance,
    losses,
    reductions,
    surrogate,
)
from flowrl.functional.covariance import token_covariance
from flowrl.functional.token_baseline import optimal_token_baseline
from flowrl.functional.whitening import whiten
from tests.functional.batches import JUNK, batches

TOKEN_FUNCTIONS = {
    "discounted_returns": lambda t, r, m, g, k: A.discounted_returns(t["a"], m, gamma=0.9, **k),
    "gae": lambda t, r, m, g, k: A.gae(t["a"], t["b"], m, r["s"], gamma=0.9, lam=0.8, **k)[0],
    "gae returns": lambda t, r, m, g, k: A.gae(t["a"], t["b"], m, gamma=0.9, lam=0.8, **k)[1],
    "token_rewards": lambda t, r, m, g, k: A.token_rewards(r["s"], m, t["a"], **k),
    "remax": lambda t, r, m, g, k: A.remax(t["a"], m, r["s"], **k),
    "reinforce_plus_plus": lambda t, r, m, g, k: A.reinforce_plus_plus(t["a"], m, gamma=0.9, **k),
    "reinforce_plus_plus_baseline": lambda t, r, m, g, k: A.reinforce_plus_plus_baseline(
        r["s"], m, groups=g, **k
    ),
    "optimal_token_baseline": lambda t, r, m, g, k: optimal_token_baseline(
        t["a"], m, t["b"], t["c"], groups=g, **k
    ),
    "whiten": lambda t, r, m, g, k: whiten(t["a"], m),
    "whiten keep_mean": lambda t, r, m, g, k: whiten(t["a"], m, mode="keep_mean"),
    "whiten scale_only": lambda t, r, m, g, k: whiten(t["a"], m, mode="scale_only"),
    "clipped_surrogate": lambda t, r, m, g, k: surrogate.clipped_surrogate(
        t["a"], t["b"], t["c"], m, clip_high=0.3, dual_clip=1.5
    ),
    "sequence_logratio": lambda t, r, m, g, k: surrogate.sequence_logratio(t["a"], t["b"], m, **k),
    "sequence_surrogate": lambda t, r, m, g, k: surrogate.sequence_surrogate(
        t["a"], t["b"], t["c"], m, clip=0.2, **k
    ),
    "cispo": lambda t, r, m, g, k: losses.cispo(t["a"], t["b"], t["c"], m),
    "decoupled": lambda t, r, m, g, k: surrogate.decoupled(
        t["a"], t["b"], t["c"], t["d"], m, weight_cap=1.5
    ),
    "reinforce": lambda t, r, m, g, k: losses.reinforce(t["a"], t["b"], m),
    "clipped_value": lambda t, r, m, g, k: losses.clipped_value(t["a"], t["b"], t["c"], m),
    "clip_cov": lambda t, r, m, g, k: covariance.clip_cov(
        t["a"], t["b"], t["c"], m, fraction=0.3, low=0.0
    ),
    "kl_cov": lambda t, r, m, g, k: covariance.kl_cov(t["a"], t["b"], t["c"], m, fraction=0.3),
    "token_covariance": lambda t, r, m, g, k: token_covariance(t["a"], t["b"], m),
    "kl k1": lambda t, r, m, g, k: divergences.kl(t["a"], t["b"], None, m, estimator="k1"),
    "kl k3": lambda t, r, m, g, k: divergences.kl(t["a"], t["b"], None, m),
    "kl unbiased": lambda t, r, m, g, k: divergences.kl(
        t["a"], t["b"], t["c"], m, gradient="unbiased"
    ),
    **{
        f"importance_weights {level} {mode}": lambda t, r, m, g, k, level=level, mode=mode: (
            importance.importance_weights(t["a"], t["b"], m, level=level, mode=mode, low=0.5, **k)[
                0
            ]
        )
        for level, mode in [
            ("token", "truncate"),
            ("sequence", "truncate"),
            ("geomean", "mask"),
            ("token", "geomean_filter_token_truncate"),
        ]
    },
}
REDUCTIONS = {
    "row_sum": lambda t, r, m, g, k: reductions.row_sum(t["a"], m, **k),
    "row_mean": lambda t, r, m, g, k: reductions.row_mean(t["a"], m, **k),
    "horizon_mean": lambda t, r, m, g, k: reductions.horizon_mean(t["a"], m, horizon=7, **k),
    **{
        f"{mode} {rows}": lambda t, r, m, g, k, mode=mode, rows=rows: reductions.aggregate(
            t["a"], m, mode=mode, denominator=rows, **k
        )
        for mode in reductions.MODES[:3]
        for rows in ("active", "all")
    },
}
FUNCTIONS = TOKEN_FUNCTIONS | REDUCTIONS

every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
every_token_function = pytest.mark.parametrize(
    "function", TOKEN_FUNCTIONS.values(), ids=TOKEN_FUNCTIONS
)


def law(**strategies):
    """Test on a few batches: the table is long, and its functions share their parts."""
    strategies = {"batch": batches(least=2), **strategies}
    return lambda test: settings(max_examples=8, deadline=None)(given(**strategies)(test))


def gradients(function, batch, tokens, mask, lengths):
    """Return the outputs, and the gradient of their squares in each column that has one."""
    leaves = {name: x.clone().requires_grad_() for name, x in tokens.items()}
    out = function(leaves, batch.rows, mask, batch.groups, lengths)
    if not out.requires_grad:
        return out, {}
    grads = torch.autograd.grad(out.square().sum(), list(leaves.values()), allow_unused=True)
    return out.detach(), {n: x for n, x in zip(leaves, grads, strict=True) if x is not None}


@every_function
@law()
def test_packed_and_padded_forms_give_the_same(function, batch):
    packed, packed_grads = gradients(
        function, batch, batch.tokens, batch.mask, {"lengths": batch.lengths}
    )
    mask, tokens = batch.padded(extra=2)
    padded, padded_grads = gradients(function, batch, tokens, mask, {})

    if padded.dim() == 2:
        padded = batch.packed_from(padded)
    torch.testing.assert_close(padded, packed, rtol=1e-12, atol=1e-12)
    for name, grad in packed_grads.items():
        other = batch.packed_from(padded_grads[name])
        torch.testing.assert_close(other, grad, rtol=1e-11, atol=1e-11)


@every_function
@law(junk=st.sampled_from(JUNK))
def test_what_a_masked_position_holds_changes_nothing(function, batch, junk):
    lengths = {"lengths": batch.lengths}
    clean, clean_grads = gradients(function, batch, batch.tokens, batch.mask, lengths)
    dirty, dirty_grads = gradients(function, batch, batch.dirty(junk).tokens, batch.mask, lengths)

    assert torch.equal(dirty, clean)
    assert all(torch.equal(dirty_grads[name], clean_grads[name]) for name in clean_grads)
    assert all((grad[~batch.mask] == 0).all() for grad in dirty_grads.values())


@every_token_function
@law(junk=st.sampled_from(JUNK))
def test_outputs_at_masked_positions_are_0(function, batch, junk):
    dirty = batch.dirty(junk)

    out = function(dirty.tokens, dirty.rows, dirty.mask, dirty.groups, {"lengths": dirty.lengths})

    assert (out[~batch.mask] == 0).all()


@every_function
@law(extra=st.integers(1, 3), junk=st.sampled_from(JUNK))
def test_wider_padding_changes_nothing(function, batch, extra, junk):
    mask, tokens = batch.padded(junk=junk)
    narrow, _ = gradients(function, batch, tokens, mask, {})
    wide_mask, wide_tokens = batch.padded(extra, junk)
    wide, _ = gradients(function, batch, wide_tokens, wide_mask, {})

    if wide.dim() == 2:
        wide = wide[:, : mask.shape[1]]
    torch.testing.assert_close(wide, narrow, rtol=1e-13, atol=1e-13)


NEEDS_A_VARIANCE = ("whiten", "reinforce_plus_plus")


@pytest.mark.parametrize(
    "function",
    [f for name, f in FUNCTIONS.items() if not name.startswith(NEEDS_A_VARIANCE)],
    ids=[name for name in FUNCTIONS if not name.startswith(NEEDS_A_VARIANCE)],
)
@law(batch=batches())
def test_with_nothing_trained_all_is_0(function, batch):
    mask = torch.zeros_like(batch.mask)
    tokens = batch.dirty(float("nan")).tokens

    out, grads = gradients(function, batch, tokens, mask, {"lengths": batch.lengths})

    assert (out == 0).all()
    assert all((grad == 0).all() for name, grad in grads.items())


@every_function
def test_one_token_of_one_row_gives_a_finite_result(function):
    one = torch.tensor([[0.5, -0.25]], dtype=torch.float64)
    mask, rows = torch.ones_like(one, dtype=torch.bool), {"s": torch.ones(1, dtype=torch.float64)}
    tokens = {"a": one, "b": one / 2, "c": one / 3, "d": one / 4}

    out = function(tokens, rows, mask, torch.zeros(1, dtype=torch.int64), {})

    assert out.isfinite().all()


@every_function
@law(batch=batches(dtype=torch.float32, least=2))
def test_float32_stays_float32(function, batch):
    out = function(batch.tokens, batch.rows, batch.mask, batch.groups, {"lengths": batch.lengths})

    assert out.dtype == torch.float32
