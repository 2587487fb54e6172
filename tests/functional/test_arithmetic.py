import pytest
import torch

from flowrl.functional.arithmetic import std


@pytest.mark.parametrize("value", [0.1, 0.3, 1000.1])
def test_equal_samples_have_no_deviation_not_even_that_of_rounding(value):
    rewards = torch.full((8 + 16 + 1000,), value, requires_grad=True)

    deviations = std(rewards, over="sample", lengths=torch.tensor([8, 16, 1000]))
    deviations.sum().backward()

    assert (deviations == 0).all()
    assert (rewards.grad == 0).all()


def test_what_is_not_a_number_has_no_deviation_of_0():
    assert std(torch.tensor([1.0, torch.nan])).isnan()
