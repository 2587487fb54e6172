import pytest

from flowrl.errors import RewardError
from flowrl.rewards.pool import RewardPool
from flowrl.rewards.scoring import score_function
from flowrl.rewards.spec import RewardSpec


@pytest.fixture
def two_rewards(tmp_path):
    """A pool of `length`, and of `strict`, which refuses the completion `bad`."""

    def strict(completions):
        return [None if completion == "bad" else 1.0 for completion in completions]

    specs = {
        "length": RewardSpec(lambda completions: [len(c) for c in completions]),
        "strict": RewardSpec(strict),
    }
    with RewardPool(specs, folder=tmp_path) as pool:
        yield pool


def test_each_reward_scores_every_completion_and_failures_are_counted(two_rewards, rows):
    score = score_function(two_rewards, "drop_group")

    scores = score(["strict", "length"], rows(2), ["a", "bad"], [0, 1], 5)

    assert scores.values == [[1.0, None], [1.0, 3.0]]
    assert scores.counts == {"reward/errors": 1, "reward/timeouts": 0, "reward/recovered": 0}


def test_under_fail_the_first_failure_ends_the_step(two_rewards, rows):
    score = score_function(two_rewards, "fail")

    with pytest.raises(RewardError, match=r"returned None\n  data.jsonl:2 .*, sample 1, step 6"):
        score(["length", "strict"], rows(2), ["a", "bad"], [0, 1], 5)
