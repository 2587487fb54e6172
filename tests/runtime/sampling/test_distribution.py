import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from flowrl.runtime.engine import Sampling
from flowrl.runtime.sampling.distribution import log_distribution, sample, uniforms

LOGITS = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05]], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.5, 0.2, 0.15, 0.1, 0.05]),
        (
            Sampling(temperature=0.5),
            [0.25 / 0.325, 0.04 / 0.325, 0.0225 / 0.325, 0.01 / 0.325, 0.0025 / 0.325],
        ),
        (Sampling(top_k=2), [0.5 / 0.7, 0.2 / 0.7, 0, 0, 0]),
        (Sampling(top_k=9), [0.5, 0.2, 0.15, 0.1, 0.05]),
        (Sampling(top_p=0.6), [0.5 / 0.7, 0.2 / 0.7, 0, 0, 0]),
        (Sampling(top_p=0.01), [1, 0, 0, 0, 0]),
        (Sampling(top_k=2, top_p=0.7), [1, 0, 0, 0, 0]),  # 0.5 / 0.7 reaches it: top-k went first
        (Sampling(temperature=0.5, top_p=0.76), [1, 0, 0, 0, 0]),  # and temperature before both
    ],
)
def test_filters_by_hand(sampling, expected):
    got = log_distribution(LOGITS, sampling).exp()

    assert_close(got, torch.tensor([expected], dtype=torch.float64))


@given(
    seed=st.integers(0, 2**32),
    temperature=st.floats(0.1, 3),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_draw_is_possible_and_has_its_own_logprob(seed, temperature, top_k, top_p, uniform):
    logits = torch.randn(3, 10, generator=torch.Generator().manual_seed(seed)) * 5
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)

    tokens, logprobs = sample(logits, sampling, torch.full((3,), uniform, dtype=torch.float64))

    log_p = log_distribution(logits, sampling)
    assert torch.equal(logprobs, log_p.gather(-1, tokens[:, None])[:, 0])
    assert (logprobs > -math.inf).all()
    assert_close(log_p.exp().sum(-1), torch.ones(3))


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(top_p=0.8), Sampling(temperature=2.0, top_k=3)]
)
def test_even_uniforms_draw_each_token_as_often_as_it_is_probable(sampling):
    count = 10_000
    even = (torch.arange(count, dtype=torch.float64) + 0.5) / count

    tokens, _ = sample(LOGITS.expand(count, -1), sampling, even)

    share = torch.bincount(tokens, minlength=5) / count
    assert_close(
        share.double(), log_distribution(LOGITS, sampling)[0].exp(), rtol=0, atol=2 / count
    )


def test_the_ends_of_the_unit_interval_draw_the_ends_of_the_support():
    logits = torch.tensor([[-math.inf, 0.0, 1.0, -math.inf]])
    largest = math.nextafter(1.0, 0.0)

    tokens, _ = sample(
        logits.expand(2, -1), Sampling(), torch.tensor([0.0, largest], dtype=torch.float64)
    )

    assert tokens.tolist() == [1, 2]


def test_temperature_zero_is_a_point_mass_on_the_first_of_the_likeliest():
    tokens, logprobs = sample(
        torch.tensor([[1.0, 3.0, 3.0]]), Sampling(temperature=0), torch.zeros(1)
    )

    assert tokens.tolist() == [1]
    assert logprobs.tolist() == [0.0]


def test_every_bit_of_a_seed_counts_and_a_longer_limit_keeps_the_draws():
    seeds = [0, 1, 2**32, 2**63, 2**64 - 1]

    assert len({uniforms(seed, 1)[0] for seed in seeds}) == len(seeds)
    assert uniforms(7, 5).tolist() == uniforms(7, 9)[:5].tolist()
