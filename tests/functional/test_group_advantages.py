import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from torch.testing import assert_close

from flowrl.functional.group_advantages import gdpo, group_advantage, leave_one_out, opo
from tests.functional.batches import refusal

COUNTS = torch.tensor([3, 9, 4, 7, 5, 2, 8, 6])
ESTIMATORS = {
    "grpo": lambda rewards, **groups: group_advantage(rewards, eps=1e-12, **groups),
    "dr_grpo": lambda rewards, **groups: group_advantage(rewards, norm_by_std=False, **groups),
    "rloo": leave_one_out,
    "opo": lambda rewards, **groups: opo(rewards, 1 + (1e3 * rewards).long() % 5, **groups),
}
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
rewards_of = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.1, 0.5, 1.0, -2.0])), min_size=1
)


def unzip(samples):
    groups, rewards = zip(*samples, strict=True)
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups)


@every_estimator
@given(samples=rewards_of, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_samples_and_the_names_of_groups_do_not_matter(estimator, samples, shuffle):
    rewards, groups = unzip(samples)
    order = list(range(len(samples)))
    shuffle.shuffle(order)
    names = torch.tensor([70, -3, 12, 5])

    advantages = estimator(rewards, groups=groups)

    moved = estimator(rewards[order], groups=names[groups[order]])
    torch.testing.assert_close(moved, advantages[order], rtol=1e-9, atol=1e-12)


@every_estimator
@given(samples=rewards_of)
def test_a_group_does_not_depend_on_the_others(estimator, samples):
    rewards, groups = unzip(samples)

    advantages = estimator(rewards, groups=groups)

    for group in groups.unique():
        here = groups == group
        assert torch.equal(estimator(rewards[here], groups=groups[here]), advantages[here])


@every_estimator
@given(rewards=st.lists(st.lists(st.floats(-3, 3), min_size=3, max_size=3), min_size=1))
def test_the_last_dimension_is_the_group_without_ids(estimator, rewards):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    groups = torch.arange(len(rewards)).repeat_interleave(3)

    advantages = estimator(rewards)

    assert torch.equal(advantages.flatten(), estimator(rewards.flatten(), groups=groups))


@every_estimator
@given(reward=st.floats(-1e3, 1e3), size=st.integers(1, 7), dtype=st.sampled_from([32, 64]))
def test_equal_rewards_and_single_samples_give_exactly_0(estimator, reward, size, dtype):
    rewards = torch.full((2, size), reward, dtype=torch.float32 if dtype == 32 else torch.float64)

    assert (estimator(rewards) == 0).all()


@every_estimator
@pytest.mark.parametrize("rewards", [torch.empty(0), torch.empty(0, 4), torch.empty(2, 0)])
def test_no_samples_give_no_advantages(estimator, rewards):
    assert estimator(rewards).shape == rewards.shape


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
@given(samples=rewards_of, shift=st.floats(-5, 5), scale=st.floats(0.5, 4))
def test_a_shift_of_rewards_changes_nothing_and_a_scale_at_most_scales(name, samples, shift, scale):
    rewards, groups = unzip(samples)
    estimator = ESTIMATORS[name]

    advantages = estimator(rewards, groups=groups)

    moved = estimator(scale * rewards + shift, groups=groups)
    want = advantages if name == "grpo" else scale * advantages
    torch.testing.assert_close(moved, want, rtol=1e-6, atol=1e-6)


@given(samples=rewards_of)
def test_leave_one_out_subtracts_the_mean_of_the_others(samples):
    rewards, groups = unzip(samples)

    advantages = leave_one_out(rewards, groups=groups)

    for sample in range(len(rewards)):
        others = (groups == groups[sample]) & (torch.arange(len(rewards)) != sample)
        want = rewards[sample] - rewards[others].mean() if others.any() else rewards.new_zeros(())
        torch.testing.assert_close(advantages[sample], want, rtol=1e-9, atol=1e-12)


def test_a_reward_that_is_not_finite_is_refused_by_name():
    rewards = torch.tensor([1.0, float("nan"), 0.0, float("inf")])

    message = refusal(group_advantage, rewards, sample_ids=["a", "b", "c", "d"])

    assert message == snapshot(
        "rewards must be finite numbers; sample b has nan (2 of 4 samples are not finite)"
    )


@pytest.mark.parametrize("estimator", [leave_one_out, lambda r: opo(r, torch.ones(2))])
def test_other_estimators_refuse_it_too(estimator):
    with pytest.raises(ValueError, match="sample 1 has nan"):
        estimator(torch.tensor([1.0, float("nan")]))


def test_unknown_options_name_what_is_allowed():
    message = refusal(group_advantage, torch.ones(2), nonfinite="drop")

    assert message == snapshot('nonfinite must be "raise" or "exclude"; got \'drop\'')


def test_groups_must_be_one_a_sample():
    message = refusal(leave_one_out, torch.ones(3), groups=torch.tensor([0, 1]))

    assert message == snapshot("groups must have one id a sample, i64[3]; got shape (2,)")


@given(samples=rewards_of, scale=st.floats(0.1, 10), shift=st.floats(-5, 5))
def test_gdpo_is_free_of_the_unit_of_each_reward(samples, scale, shift):
    first, groups = unzip(samples)
    second = first.flip(0)
    options = {"weights": [1.0, 3.0], "eps": 1e-12, "groups": groups}  # so that no sums cancel

    plain = gdpo(torch.stack([first, second], -1), **options)

    moved = gdpo(torch.stack([first * scale + shift, second], -1), **options)
    torch.testing.assert_close(moved, plain, rtol=1e-6, atol=1e-6)


def test_gdpo_tells_apart_rewards_whose_sums_grpo_normalises_alike():
    """In the first group only one reward differs, in the second both; the sums look the same."""
    rewards = torch.tensor([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]])

    decoupled = gdpo(rewards)

    summed = group_advantage(rewards.sum(-1))
    assert summed[0].tolist() == pytest.approx(summed[1].tolist(), abs=1e-5)
    assert decoupled[1, 1] == pytest.approx(2 * decoupled[0, 1])
    assert decoupled.flatten().std() == pytest.approx(1.0)


@pytest.mark.parametrize("rewards", [[[[1.0, 2.0]]], [[[1.0, 2.0], [1.0, 2.0]]]])
def test_gdpo_of_one_sample_or_of_equal_rewards_is_0(rewards):
    assert (gdpo(torch.tensor(rewards)) == 0).all()


def test_gdpo_takes_packed_rewards():
    rewards = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.5, 2.0]]])

    packed = gdpo(
        rewards.flatten(), weights=[1.0, 3.0], lengths=torch.tensor([2] * 3), groups=torch.zeros(3)
    )

    torch.testing.assert_close(packed, gdpo(rewards, weights=[1.0, 3.0])[0])


def test_equal_rewards_and_a_single_one_give_0_without_eps():
    rewards, groups = torch.tensor([2.0, 0.1, 0.1, 0.1]), torch.tensor([0, 1, 1, 1])

    assert group_advantage(rewards, eps=0.0, groups=groups).tolist() == [0.0] * 4


@pytest.mark.parametrize("unit", [1e-30, 1e-6, 1.0, 1e6, 1e30, 1e38])
def test_rewards_whose_squares_are_out_of_range_are_compared_too(unit):
    rewards = torch.tensor([[0.0, unit, 0.0, unit], [0.0, 0.0, 0.0, unit]])

    found = group_advantage(rewards, eps=0.0)

    half = 0.75**0.5
    assert_close(found, torch.tensor([[-half, half, -half, half], [-0.5, -0.5, -0.5, 1.5]]))


def test_rewards_whose_sums_are_out_of_range_are_compared_too():
    rewards, counts = torch.tensor([[3e38, 3e38, 0.0], [0.0, 1e38, 2e38]]), torch.ones(2, 3)

    third, small = 3**-0.5, torch.tensor(1e38)
    spread = torch.tensor([[third, third, -2 * third], [-1.0, 0.0, 1.0]])
    assert_close(group_advantage(rewards), spread)
    assert_close(opo(rewards, counts) / small, torch.tensor([[1.0, 1.0, -2.0], [-1.0, 0.0, 1.0]]))
    assert_close(leave_one_out(rewards) / small, torch.tensor([[1.5, 1.5, -3.0], [-1.5, 0.0, 1.5]]))
    weighed = gdpo(rewards[..., None], weights=[1e30])
    assert_close(weighed, spread / spread.flatten().std())


def test_rewards_that_are_large_and_close_together_are_told_apart():
    rewards, counts = torch.tensor([[0.125, 0.1875, 0.0]]), torch.tensor([[3, 1, 2]])

    for estimate in (group_advantage, leave_one_out, lambda r: opo(r, counts)):
        assert_close(estimate(rewards + 1e6), estimate(rewards), rtol=1e-5, atol=1e-6)
