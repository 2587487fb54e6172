import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.functional.filters import dynamic_filter, has_signal, policy_filter
from flowrl.functional.refusals import SampleRefusedError
from flowrl.functional.rewards import combine_rewards, usable
from tests.functional.batches import refusal

NAN = float("nan")
rounds_of = st.lists(
    st.lists(st.sampled_from([(0.0, 1.0), (0.1, 0.1, 0.1), (1.0,), (0.0, NAN), ()]))
)


def test_a_group_has_a_signal_if_its_rewards_are_finite_and_differ():
    rewards = torch.tensor([0.1, 0.0, 0.1, 1.0, 0.1, NAN, 1.0, 5.0], dtype=torch.float64)
    groups = torch.tensor([9, 4, 9, 4, 9, 2, 2, 7])

    signal = has_signal(rewards, groups=groups)

    assert signal.tolist() == [False, True, False, False]  # groups 9, 4, 2, 7


def test_the_last_dimension_is_the_group_without_ids():
    rewards = torch.tensor([[[0.0, 1.0], [1.0, 1.0]]])

    assert has_signal(rewards).tolist() == [[True, False]]


@given(rounds=rounds_of, target=st.integers(1, 4))
def test_drawing_stops_with_the_round_that_brings_enough(rounds, target):
    named = [[((n, k), rewards) for k, rewards in enumerate(r)] for n, r in enumerate(rounds)]
    good = [key for drawn in named for key, rewards in drawn if rewards == (0.0, 1.0)]
    if len(good) < target:
        assert f"wanted {target} groups" in refusal(
            dynamic_filter, named, target=target, max_rounds=99
        )
        return

    selection = dynamic_filter(named, target=target, max_rounds=99)

    assert selection.batch == good[:target]
    assert selection.rounds_used == good[target - 1][0] + 1
    read = [key for drawn in named[: selection.rounds_used] for key, _ in drawn]
    assert sorted(selection.batch + selection.surplus + selection.dropped) == read


def test_no_round_is_drawn_that_is_not_needed():
    rounds = iter([[("a", (0.0, 1.0))], [("b", (0.0, 1.0))]])

    dynamic_filter(rounds, target=1, max_rounds=2)

    assert next(rounds) == [("b", (0.0, 1.0))]


def test_a_shortfall_says_what_was_found():
    rounds = [[("a", (1.0, 1.0)), ("b", (0.0, 1.0))]] * 3

    assert refusal(dynamic_filter, rounds, target=5, max_rounds=2) == snapshot(
        "wanted 5 groups with different rewards; found 2 in 2 rounds (max_rounds = 2, 2 groups dropped)"
    )


some = st.lists(st.lists(st.sampled_from([0.0, 0.1, 1.0, 2.0]), min_size=1), max_size=5)


def kept(groups, **options):
    """Return the places of the samples that are kept of each group."""
    ids = torch.tensor([n for n, group in enumerate(groups) for _ in group], dtype=torch.int64)
    flat = torch.tensor([x for group in groups for x in group])
    chosen = policy_filter(flat, groups=ids, **options).split([len(g) for g in groups])
    return [part.nonzero().flatten().tolist() for part in chosen]


@given(some)
def test_the_best_is_the_first_of_the_largest_rewards(groups):
    assert kept(groups, keep="best") == [[group.index(max(group))] for group in groups]


@given(some)
def test_best_and_worst_are_two_samples_of_the_largest_and_the_smallest_reward(groups):
    for group, places in zip(groups, kept(groups, keep="best_worst"), strict=True):
        assert len(places) == min(2, len(group))
        assert {group[place] for place in places} == {max(group), min(group)}


@given(some, st.integers(0, 99))
def test_best_and_random_are_the_best_and_one_more(groups, seed):
    best = kept(groups, keep="best")
    for group, first, places in zip(
        groups, best, kept(groups, keep="best_random", seed=seed), strict=True
    ):
        assert set(first) <= set(places)
        assert len(places) == min(2, len(group))


def test_the_other_sample_is_drawn_evenly():
    groups = [[3.0, 1.0, 2.0, 0.0]] * 3000

    others = [place for places in kept(groups, keep="best_random") for place in places if place]

    assert [others.count(place) for place in (1, 2, 3)] == pytest.approx([1000] * 3, rel=0.1)


def test_groups_may_be_the_last_dimension_of_rewards():
    rewards = torch.tensor([[0.0, 2.0, 1.0], [5.0, 5.0, 5.0]])

    chosen = policy_filter(rewards, keep="best_worst")

    assert chosen.tolist() == [[True, True, False], [True, True, False]]


@pytest.mark.parametrize("keep", ["best", "best_worst", "best_random"])
def test_no_reward_that_is_not_finite_is_the_best_or_the_worst(keep):
    for bad in (NAN, math.inf, -math.inf):
        with pytest.raises(SampleRefusedError, match=f"sample 1 has {bad}"):
            policy_filter(torch.tensor([[0.0, bad, 1.0]]), keep=keep)


def test_rewards_that_are_missing_leave_the_sum_of_the_others():
    rewards = torch.tensor([[1.0, 2.0], [NAN, 2.0], [NAN, NAN]])

    total = combine_rewards(rewards, weights=[1.0, 0.5])

    assert total[:2].tolist() == [2.0, 1.0]
    assert usable(total).tolist() == [True, True, False]


def test_packed_rewards_combine_to_the_same():
    rewards = torch.tensor([[1.0, 2.0], [3.0, 4.0]])

    packed = combine_rewards(rewards.flatten(), lengths=torch.tensor([2, 2]))

    assert torch.equal(packed, combine_rewards(rewards))


def test_an_infinite_reward_stays_in_sight_whatever_its_weight():
    total = combine_rewards(torch.tensor([[1.0, math.inf]]), weights=[1.0, 0.0])

    assert not usable(total)


def test_weights_must_be_one_finite_number_a_reward():
    assert refusal(combine_rewards, torch.ones(3, 2), weights=[1.0, NAN]) == snapshot(
        "weights must be finite; got [1.0, nan]"
    )
    assert refusal(combine_rewards, torch.ones(3, 2), weights=[1.0]) == snapshot(
        "weights must be one a reward, 2; got 1: [1.0]"
    )
