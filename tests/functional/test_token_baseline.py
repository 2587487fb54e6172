import torch
from hypothesis import given
from hypothesis import strategies as st

from flowrl.functional.token_baseline import optimal_token_baseline
from tests.functional.batches import batches

EVERY = torch.ones(2, 2, dtype=torch.bool)


def test_the_baseline_weighs_returns_by_the_energy_spent_so_far():
    """Energies 1 - 2 pi + c are (1, 1) and (3, 1): W = (1, 2) and (3, 4), B = (3/4, 2/3)."""
    rewards, probabilities = torch.tensor([[0.0, 0.0], [0.0, 1.0]]), torch.full((2, 2), 0.5)
    collision = torch.tensor([[1.0, 1.0], [3.0, 1.0]])

    advantages = optimal_token_baseline(rewards, EVERY, probabilities.log(), collision)

    expected = torch.tensor([[0 - 3 / 4, 0 - 2 / 3], [1 - 3 / 4, 1 - 2 / 3]])
    torch.testing.assert_close(advantages, expected)


@given(batch=batches(least=1))
def test_the_weighted_advantages_of_a_place_add_up_to_0(batch):
    """Of the first trained tokens here, where the weight is the token's own energy."""
    logprobs, collision = -batch.tokens["b"].abs(), batch.tokens["c"].sigmoid()
    energy = (1 - 2 * logprobs.exp() + collision).clamp(min=0)

    advantages = optimal_token_baseline(
        batch.tokens["a"], batch.mask, logprobs, collision,
        lengths=batch.lengths, groups=torch.zeros_like(batch.lengths),
    )  # fmt: skip

    rows = zip(
        *(x.split(batch.lengths.tolist()) for x in (batch.mask, energy, advantages)), strict=True
    )
    first = [(w[m][0], a[m][0]) for m, w, a in rows if m.any()]
    assert abs(sum(w * a for w, a in first)) < 1e-9


@given(batch=batches(least=1))
def test_a_sample_alone_at_a_place_gets_0(batch):
    apart = torch.arange(len(batch.lengths))

    advantages = optimal_token_baseline(
        batch.tokens["a"], batch.mask, batch.tokens["b"], batch.tokens["c"],
        lengths=batch.lengths, groups=apart,
    )  # fmt: skip

    assert (advantages == 0).all()


@given(reward=st.floats(-2, 2))
def test_equal_rewards_give_exactly_0(reward):
    rewards = torch.tensor([[0.0, reward], [0.0, reward]])

    advantages = optimal_token_baseline(rewards, EVERY, -torch.rand(2, 2), torch.rand(2, 2))

    assert (advantages == 0).all()
