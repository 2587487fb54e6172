import pytest
import torch
from hypothesis import given
from inline_snapshot import snapshot

from flowrl.functional import reductions
from flowrl.functional.reductions import aggregate, aggregate_divisor, aggregate_total
from tests.functional.batches import batches, refusal

MODES = {mode: {} for mode in reductions.MODES} | {"seq-mean-token-sum-norm": {"horizon": 7}}
every_mode = pytest.mark.parametrize("mode", MODES)


@every_mode
@given(batch=batches())
def test_totals_of_single_rows_add_up_to_the_mean_and_its_gradient(mode, batch):
    x = batch.tokens["a"].requires_grad_()
    sizes = batch.lengths.tolist()
    divisor = aggregate_divisor(batch.mask, mode=mode, lengths=batch.lengths, **MODES[mode])

    parts = [
        aggregate_total(row, mask, mode=mode, lengths=torch.tensor([len(row)])) / divisor
        for row, mask in zip(x.split(sizes), batch.mask.split(sizes), strict=True)
    ]

    whole = aggregate(x, batch.mask, mode=mode, lengths=batch.lengths, **MODES[mode])
    torch.testing.assert_close(sum(parts), whole, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in (sum(parts), whole)]
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)


NAMED = {
    "token-mean": reductions.token_mean,
    "seq-mean-token-mean": reductions.sequence_mean,
    "seq-mean-token-sum": reductions.sequence_sum_mean,
    "seq-mean-token-sum-norm": reductions.horizon_mean,
}


@every_mode
@given(batch=batches())
def test_a_mode_is_the_function_of_that_name(mode, batch):
    rows = {} if mode == "token-mean" else {"lengths": batch.lengths}

    named = NAMED[mode](batch.tokens["a"], batch.mask, **rows, **MODES[mode])

    by_mode = aggregate(
        batch.tokens["a"], batch.mask, mode=mode, lengths=batch.lengths, **MODES[mode]
    )
    assert torch.equal(named, by_mode)


@pytest.mark.parametrize("name", ["token_mean", "sequence_mean", "sequence_sum_mean"])
@given(batch=batches())
def test_a_mean_is_its_total_over_its_divisor(name, batch):
    mean, total, divisor = (getattr(reductions, name + end) for end in ("", "_total", "_divisor"))
    keywords = {
        f: {"lengths": batch.lengths} if f.__kwdefaults__ else {} for f in (mean, total, divisor)
    }

    whole = mean(batch.tokens["a"], batch.mask, **keywords[mean])

    parts = total(batch.tokens["a"], batch.mask, **keywords[total])
    assert torch.equal(whole, parts / divisor(batch.mask, **keywords[divisor]))


def test_rows_without_tokens_count_only_where_all_do():
    x = torch.ones(3, 2)
    mask = torch.tensor([[True, True], [True, False], [False, False]])

    assert reductions.sequence_sum_mean(x, mask) == 1.5
    assert reductions.sequence_sum_mean(x, mask, denominator="all") == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mode": "mean"},
            snapshot(
                "mode must be one of token-mean, seq-mean-token-mean, seq-mean-token-sum, "
                "seq-mean-token-sum-norm; got 'mean'"
            ),
        ),
        (
            {"mode": "token-mean", "horizon": 5},
            snapshot(
                "horizon belongs to mode seq-mean-token-sum-norm; "
                "got horizon=5 with mode 'token-mean'"
            ),
        ),
        (
            {"mode": "seq-mean-token-sum-norm"},
            snapshot(
                "horizon belongs to mode seq-mean-token-sum-norm; "
                "got horizon=None with mode 'seq-mean-token-sum-norm'"
            ),
        ),
        (
            {"mode": "seq-mean-token-sum-norm", "horizon": 0},
            snapshot("horizon must be above 0 tokens; got 0"),
        ),
        (
            {"mode": "seq-mean-token-sum", "denominator": "rows"},
            snapshot('denominator must be "active" or "all"; got \'rows\''),
        ),
    ],
)
def test_options_that_do_not_exist_or_contradict_are_refused(options, message):
    got = refusal(aggregate, torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool), **options)

    assert got == message
