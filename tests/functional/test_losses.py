import math

import pytest
import torch
from hypothesis import given
from inline_snapshot import snapshot

from flowrl.functional.covariance import clip_cov, kl_cov
from flowrl.functional.losses import binary_cross_entropy, cispo, clipped_value, reinforce
from flowrl.functional.preferences import bradley_terry, dpo_loss
from flowrl.functional.reductions import sequence_mean, token_mean
from flowrl.functional.surrogate import clipped_surrogate, decoupled, sequence_surrogate
from tests.functional.batches import batches, refusal

MASK = torch.tensor([[True, True, True, False], [True, False, True, True]])
CONSTANTS = {
    clipped_surrogate: 2,
    sequence_surrogate: 2,
    decoupled: 3,
    reinforce: 1,
    clipped_value: 2,
    kl_cov: 2,
}


def numbers(seed, shape=(2, 4)):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("loss", CONSTANTS)
def test_gradients_are_those_of_the_value(loss):
    constants = [numbers(seed) for seed in range(CONSTANTS[loss])]

    assert torch.autograd.gradcheck(
        lambda new: loss(new, *constants, MASK), numbers(9).requires_grad_()
    )


@given(batch=batches())
def test_at_ratio_1_the_surrogate_has_the_slope_of_reinforce(batch):
    new, advantages = batch.tokens["a"].requires_grad_(), batch.tokens["b"]

    surrogate = clipped_surrogate(new, new.detach(), advantages, batch.mask)

    slopes = [
        torch.autograd.grad(loss.sum(), new)[0]
        for loss in (surrogate, reinforce(new, advantages, batch.mask))
    ]
    torch.testing.assert_close(*slopes)


@given(batch=batches())
def test_the_surrogate_is_the_worse_of_the_free_and_the_clipped_objective(batch):
    new, old, advantages = (batch.tokens[name] for name in "abc")

    loss = clipped_surrogate(new, old, advantages, clip=0.1, clip_high=0.3)

    ratio = (new - old).exp()
    assert (loss >= -(ratio * advantages) - 1e-12).all()
    assert (loss >= -(ratio.clamp(0.9, 1.3) * advantages) - 1e-12).all()


@given(batch=batches())
def test_dual_clip_bounds_the_loss_of_a_bad_token(batch):
    new, old, advantages = (3 * batch.tokens[name] for name in "abc")

    loss = clipped_surrogate(new, old, advantages, dual_clip=2.0)

    bad = advantages < 0
    assert (loss[bad] <= 2.0 * advantages[bad].abs() + 1e-12).all()
    assert torch.equal(loss[~bad], clipped_surrogate(new, old, advantages)[~bad])


@given(batch=batches(least=1))
def test_a_sequence_of_one_token_has_the_same_loss_in_ppo_and_gspo(batch):
    new, old, advantages = (batch.tokens[name][:, None] for name in "abc")
    mask = torch.ones_like(new, dtype=torch.bool)

    gspo = sequence_surrogate(new, old, advantages, mask, clip=0.2, clip_high=None)

    torch.testing.assert_close(gspo, clipped_surrogate(new, old, advantages, mask))


def test_every_token_of_a_sequence_carries_its_gspo_loss():
    new, old, advantages = numbers(0), numbers(1), numbers(2)

    loss = sequence_surrogate(new, old, advantages, MASK, clip=0.2)

    torch.testing.assert_close(sequence_mean(loss, MASK), loss[:, 0].mean())
    assert torch.equal(loss[0], loss[0, :1] * MASK[0])


def test_cispo_keeps_the_slope_of_a_clipped_token():
    new = torch.tensor([2.0], requires_grad=True)

    loss = cispo(new, torch.zeros(1), torch.ones(1), clip_high=0.5)

    assert torch.autograd.grad(loss, new)[0].item() == -1.5


@pytest.mark.parametrize(("dtype", "gap"), [(torch.float32, 100.0), (torch.float64, 800.0)])
@pytest.mark.parametrize(
    ("advantage", "dual_clip", "bound"), [(2.0, None, -2.4), (0.0, None, 0.0), (-2.0, 3.0, 6.0)]
)
def test_a_bound_that_holds_has_no_slope_where_the_ratio_is_out_of_range(
    dtype, gap, advantage, dual_clip, bound
):
    new = torch.tensor([[gap, 0.0]], dtype=dtype, requires_grad=True)
    old, advantages = torch.zeros_like(new), torch.full_like(new, advantage)

    loss = clipped_surrogate(new, old, advantages, dual_clip=dual_clip)
    whole = sequence_surrogate(new * 2, old, advantages.abs(), new < math.inf, clip_high=0.2)

    assert loss.tolist()[0] == pytest.approx([bound, -advantage])
    assert torch.autograd.grad(loss.sum(), new)[0].tolist() == [[0.0, -advantage]]
    assert torch.autograd.grad(whole.sum(), new)[0].tolist() == [[0.0, 0.0]]


def test_decoupled_is_ppo_where_the_proximal_policy_sampled():
    new, old, advantages = numbers(0), numbers(1), numbers(2)

    loss = decoupled(new, old, old, advantages)

    torch.testing.assert_close(loss, clipped_surrogate(new, old, advantages))


def test_a_weight_cap_of_0_is_a_cap():
    assert decoupled(numbers(0), numbers(1), numbers(2), numbers(3), weight_cap=0.0).eq(0).all()


def test_advantages_of_samples_broadcast_over_their_tokens():
    new, old, advantages = numbers(0), numbers(1), numbers(2, (2, 1))

    loss = clipped_surrogate(new, old, advantages, MASK)

    spread = advantages.expand(2, 4)
    assert torch.equal(loss, clipped_surrogate(new, old, spread, MASK))


@given(batch=batches())
def test_value_clipping_never_lowers_the_loss(batch):
    values, old, returns = (batch.tokens[name] for name in "abc")

    clipped = clipped_value(values, old, returns, clip=0.2)

    assert (clipped >= clipped_value(values, old, returns, clip=None)).all()


def test_clip_cov_draws_among_the_tokens_of_high_covariance_only():
    new, advantages = torch.tensor([-5.0, 0.0, -0.1, 0.0]), torch.tensor([-2.0, 1.0, 0.5, 1.0])
    mask = torch.ones(4, dtype=torch.bool)
    chosen = set()

    for seed in range(20):
        loss = clip_cov(new, new, advantages, mask, fraction=0.25, high=3.0, seed=seed)
        chosen |= set((loss == 0).nonzero().flatten().tolist())

    assert chosen == {1, 3}  # covariances 6.7, 1.1, 0.5, 1.1


def test_kl_cov_penalises_the_tokens_of_the_highest_covariance():
    new, advantages = torch.tensor([-5.0, 0.0, -0.1, 0.0]), torch.tensor([-2.0, 1.0, 0.5, 1.0])
    old, mask = new - 0.1, torch.ones(4, dtype=torch.bool)

    loss = kl_cov(new, old, advantages, mask, fraction=0.25, beta=2.0)

    excess = loss - kl_cov(new, old, advantages, mask, fraction=0.25, beta=0.0)
    torch.testing.assert_close(excess, torch.tensor([0.2, 0.0, 0.0, 0.0]))


def test_no_preference_costs_log_2():
    assert dpo_loss(torch.zeros(3, 2)).tolist() == pytest.approx([math.log(2)] * 3)
    assert bradley_terry(torch.zeros(3, 2)).tolist() == pytest.approx([math.log(2)] * 3)


def test_pairs_by_id_come_in_order_of_appearance_with_the_chosen_first():
    ratios = torch.tensor([1.0, 5.0, 3.0, 4.0])

    loss = dpo_loss(ratios, beta=1.0, groups=torch.tensor([7, 2, 7, 2]))

    margins = torch.tensor([1.0 - 3.0, 5.0 - 4.0])
    torch.testing.assert_close(loss, (-margins).exp().log1p())


def test_label_smoothing_mixes_in_the_loss_of_the_swapped_pair():
    ratios = numbers(0, (3, 2))
    straight, swapped = dpo_loss(ratios), dpo_loss(ratios.flip(-1))

    smooth = dpo_loss(ratios, label_smoothing=0.1)

    torch.testing.assert_close(smooth, 0.9 * straight + 0.1 * swapped)


def test_a_preference_without_end_costs_nothing():
    ratios = torch.tensor([[torch.inf, 0.0], [3e38, -3e38]], requires_grad=True)

    loss = dpo_loss(ratios)

    assert loss.tolist() == [0.0, 0.0]
    assert not torch.autograd.grad(loss.sum(), ratios)[0].any()


def test_dpo_has_the_gradient_of_its_value():
    loss = lambda ratios: dpo_loss(ratios, label_smoothing=0.1)

    assert torch.autograd.gradcheck(loss, numbers(0, (3, 2)).requires_grad_())


def test_what_no_loss_can_take_is_refused():
    ones, mask = torch.ones(3), torch.ones(3, dtype=torch.bool)
    surrogate, dpo = clipped_surrogate, dpo_loss

    assert refusal(surrogate, ones, ones, ones, dual_clip=1.0) == snapshot(
        "dual_clip must be above 1; got 1.0"
    )
    assert refusal(kl_cov, ones, ones, ones, mask, fraction=0) == snapshot(
        "fraction must be in (0, 1]; got 0"
    )
    assert refusal(dpo, ones, groups=torch.tensor([4, 4, 5])) == snapshot(
        "a pair must have two samples, the chosen one first; pair 1 has 1"
    )
    assert refusal(dpo, torch.ones(1, 2), beta=0) == snapshot("beta must be above 0; got 0")
    assert refusal(dpo, torch.ones(1, 2), label_smoothing=0.5) == snapshot(
        "label_smoothing must be in [0, 0.5); got 0.5"
    )


def test_a_loss_without_a_mask_reduces_to_the_same():
    new, old, advantages = numbers(0), numbers(1), numbers(2)

    bare = token_mean(clipped_surrogate(new, old, advantages), MASK)

    masked = token_mean(clipped_surrogate(new, old, advantages, MASK), MASK)
    assert torch.equal(bare, masked)


@pytest.mark.parametrize("label", [0.0, 0.3, 1.0])
def test_the_cross_entropy_is_least_where_the_logit_gives_the_label(label):
    logits = torch.tensor([-800.0, -2.0, 0.0, 2.0, 800.0], requires_grad=True)

    (gradient,) = torch.autograd.grad(
        binary_cross_entropy(logits, torch.full((5,), label)).sum(), logits
    )

    torch.testing.assert_close(gradient, logits.detach().sigmoid() - label)


def test_a_label_that_is_no_probability_is_refused():
    labels = torch.tensor([1.0, 2.0])

    assert refusal(binary_cross_entropy, torch.zeros(2), labels) == snapshot(
        "labels must be in [0, 1]; got 2.0"
    )
