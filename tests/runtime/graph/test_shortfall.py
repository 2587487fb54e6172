import torch
from inline_snapshot import snapshot

from flowrl.functional.ragged import Ragged
from flowrl.runtime.graph.shortfall import levels


def told(*groups):
    return levels("reward", Ragged.of_rows(groups, torch.float32))


def test_the_rewards_that_all_samples_of_a_group_have_are_told_with_their_shares():
    right, wrong, mixed = [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]

    assert told(right, wrong, right, mixed, right) == snapshot(
        "all samples have the same `reward` in 80% of the groups: 1 (the highest) in 60%, 0 (the lowest) in 20%"
    )
    assert told(wrong, wrong) == snapshot(
        "all samples have the same `reward` in 100% of the groups: 0 in 100%"
    )
    assert told(mixed, wrong, [1.0, 0.0, 1.0]) == snapshot(
        "all samples have the same `reward` in 33.3% of the groups: 0 (the lowest) in 33.3%"
    )


def test_groups_without_such_a_reward_are_told_as_none():
    assert told([0.0, 1.0]) == snapshot("all samples have the same `reward` in 0% of the groups")
    assert told() == ""


def test_of_many_rewards_the_most_frequent_are_told():
    groups = [[i / 4] * 2 for i in (0, 1, 2, 3, 4, 2, 2, 3)]

    assert told(*groups) == snapshot(
        "all samples have the same `reward` in 100% of the groups: 0.5 in 37.5%, 0.75 in 25%, 0 (the lowest) in 12.5%, and 2 others"
    )
