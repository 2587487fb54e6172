import pytest
import torch
from hypothesis import given
from inline_snapshot import snapshot

from flowrl.functional.divergences import adaptive_kl, entropy_of_logits, kl, kl_of_logits
from tests.functional.batches import batches, refusal


def logits_of(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
@given(batch=batches())
def test_k2_and_k3_are_never_below_0(estimator, batch):
    assert (kl(batch.tokens["a"], batch.tokens["b"], estimator=estimator) >= 0).all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_equal_policies_are_0_apart(estimator):
    assert (kl(logits_of(5), logits_of(5), estimator=estimator) == 0).all()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_direct_gradient_is_that_of_the_value(estimator):
    value = lambda x: kl(x, logits_of(6, seed=1), estimator=estimator)

    assert torch.autograd.gradcheck(value, logits_of(6).requires_grad_())


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_an_unbiased_gradient_is_that_of_the_kl_in_expectation(estimator):
    logits, reference = logits_of(7).requires_grad_(), logits_of(7, seed=1)
    p, q = logits.log_softmax(-1), reference.log_softmax(-1)

    expected = (p.exp().detach() * kl(p, q, estimator=estimator, gradient="unbiased")).sum()

    exact = torch.autograd.grad(kl_of_logits(logits, reference), logits)[0]
    torch.testing.assert_close(torch.autograd.grad(expected, logits)[0], exact)


def test_samples_of_an_older_policy_give_that_gradient_when_weighed():
    logits, reference, older = (
        logits_of(7).requires_grad_(),
        logits_of(7, seed=1),
        logits_of(7, seed=2),
    )
    p, q, sampled = (x.log_softmax(-1) for x in (logits, reference, older))

    expected = (sampled.exp() * kl(p, q, sampled, gradient="unbiased")).sum()

    exact = torch.autograd.grad(kl_of_logits(logits, reference), logits)[0]
    torch.testing.assert_close(torch.autograd.grad(expected, logits)[0], exact)


def test_the_exact_kl_is_the_mean_of_k1_and_of_k3():
    logits, reference = logits_of(7), logits_of(7, seed=1)
    p, q = logits.log_softmax(-1), reference.log_softmax(-1)

    exact = kl_of_logits(logits, reference)

    for estimator in ("k1", "k3"):
        torch.testing.assert_close((p.exp() * kl(p, q, estimator=estimator)).sum(), exact)


def test_entropy_of_equal_logits_is_the_log_of_their_number():
    logits = torch.tensor([[2.0, 2.0, 2.0, 2.0], [2.0, 2.0, -torch.inf, -torch.inf]])

    torch.testing.assert_close(entropy_of_logits(logits), torch.tensor([4.0, 2.0]).log())


def test_tokens_that_cannot_be_drawn_keep_gradients_finite():
    logits = torch.tensor([1.0, 0.0, -torch.inf], requires_grad=True)

    (entropy_of_logits(logits) + kl_of_logits(logits, logits.detach() * 2)).backward()

    assert logits.grad.isfinite().all()
    assert logits.grad[2] == 0


def test_entropy_and_kl_have_the_gradients_of_their_values():
    logits = logits_of(2, 5).requires_grad_()
    entropy = lambda x: entropy_of_logits(x, temperature=0.7)
    exact = lambda x: kl_of_logits(x, logits_of(2, 5, seed=1), temperature=0.7)

    assert torch.autograd.gradcheck(entropy, logits)
    assert torch.autograd.gradcheck(exact, logits)


def test_the_coefficient_moves_by_at_most_a_fifth_of_the_share_of_its_horizon():
    coefficient = torch.tensor(1.0)

    moved = [
        adaptive_kl(coefficient, torch.tensor(kl), target=6.0, horizon=100, samples=50).item()
        for kl in (0.0, 6.0, 600.0)
    ]

    assert moved == pytest.approx([0.9, 1.0, 1.1])


def test_what_has_no_meaning_is_refused():
    x = torch.zeros(1)

    assert refusal(kl, x, x, estimator="k4") == snapshot("estimator must be k1, k2 or k3; got 'k4'")
    assert refusal(kl, x, x, gradient="biased") == snapshot(
        'gradient must be "direct" or "unbiased"; got \'biased\''
    )
    assert refusal(kl, x, x, x) == snapshot(
        'old logprobs weigh the slope of gradient="unbiased"; got "direct"'
    )
    assert refusal(entropy_of_logits, x, temperature=0.0) == snapshot(
        "temperature must be above 0; got 0.0"
    )
    assert refusal(adaptive_kl, x, x, target=1.0, horizon=0, samples=1) == snapshot(
        "horizon must be above 0; got 0"
    )
    assert refusal(adaptive_kl, x, x / 0, target=1.0, horizon=9) == snapshot(
        "the KL must be a number; the mean of divergence is nan"
    )
    assert refusal(adaptive_kl, x, x, target=1.0, horizon=12.8, samples=64) == snapshot(
        "horizon must be above a fifth of a step's samples, 12.8, or one step may take the coefficient to 0 or below; got 12.8"
    )
