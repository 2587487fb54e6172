import pytest
from inline_snapshot import snapshot

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

    scores = score(["strict", "length"], rows(2), ["a", "bad"], [0, 1], 5, {})

    assert scores.values == [[1.0, None], [1.0, 3.0]]
    assert scores.counts == {"reward/errors": 1, "reward/timeouts": 0, "reward/recovered": 0}


def test_a_list_of_the_wrong_length_is_an_error_with_both_lengths(write, tmp_path, rows):
    write("def short(completions): return [1.0] * (len(completions) - 1)")

    with RewardPool({"short": RewardSpec("rewards.py:short")}, folder=tmp_path) as pool:
        with pytest.raises(RewardError) as caught:
            score_function(pool, "fail")(["short"], rows(4), ["a"] * 4, [0, 1, 0, 1], 5, {})
        dropped = score_function(pool, "drop_group")(["short"], rows(4), ["a"] * 4, [0] * 4, 5, {})

    assert str(caught.value) == snapshot("""\
the reward function `rewards.py:short` returned 3 scores for 4 completions
  data.jsonl:1 (row 0), sample 0, step 6, the first of the call
help: return one number for each completion, in their order; or set `on_reward_error` to "drop_group" or "score_zero" to go on without it\
""")
    assert dropped.values == [[None] * 4]
    assert dropped.counts["reward/errors"] == 4


def test_under_fail_the_first_failure_ends_the_step(two_rewards, rows):
    score = score_function(two_rewards, "fail")

    with pytest.raises(RewardError, match=r"returned None\n  data.jsonl:2 .*, sample 1, step 6"):
        score(["length", "strict"], rows(2), ["a", "bad"], [0, 1], 5, {})
