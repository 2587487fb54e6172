import pytest
from inline_snapshot import snapshot

from flowrl.errors import RewardError
from flowrl.rewards.scores import Failure, Scores, fatal


def scores_of(values, kind="exception", **fields):
    failures = [
        Failure(i, kind, "raised ValueError: no", "f") for i, v in enumerate(values) if v is None
    ]
    return Scores(values, failures, **fields)


def test_failures_are_counted_by_kind():
    failures = [
        Failure(0, "timeout", "", "f"),
        Failure(1, "not_a_number", "", "f"),
        Failure(2, "timeout", "", "f"),
    ]

    counts = Scores([None] * 3, failures, recovered=1).counts("f")

    assert counts == {"reward/errors": 1.0, "reward/timeouts": 2.0, "reward/recovered": 1.0}


def test_a_wrong_type_ends_the_run_under_every_policy():
    wrong_type = scores_of([1.0, None], kind="wrong_type").failures
    not_a_number = scores_of([1.0, None], kind="not_a_number").failures

    assert [fatal(p, wrong_type) for p in ("fail", "drop_group", "score_zero")] == wrong_type * 3
    assert fatal("fail", not_a_number) == not_a_number[0]
    assert fatal("drop_group", not_a_number) is None


def test_a_failure_names_function_row_sample_and_step(rows):
    failure = Failure(
        1,
        "exception",
        "raised KeyError: 'x7'",
        "function `rewards.py:f`",
        "  rewards.py:9\n    9 | code",
    )
    scores = Scores([1.0, None], [failure])

    with pytest.raises(RewardError) as caught:
        scores.check("fail", rows(2), [0, 2], step=2)

    assert str(caught.value) == snapshot("""\
the reward function `rewards.py:f` raised KeyError: 'x7'
  data.jsonl:2 (row 1), sample 2, step 2
  rewards.py:9
    9 | code
help: fix the function or the row; or set `on_reward_error` to "drop_group" or "score_zero" to go on without it\
""")
    scores.check("drop_group", rows(2), [0, 2], step=2)
