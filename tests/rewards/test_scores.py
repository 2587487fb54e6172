import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.errors import RewardError
from flowrl.rewards.scores import Failure, Scores, apply_policy, fatal


def scores_of(values, kind="exception", **fields):
    failures = [
        Failure(i, kind, "raised ValueError: no", "f") for i, v in enumerate(values) if v is None
    ]
    return Scores(values, failures, **fields)


def test_a_group_with_a_failure_is_dropped_whole():
    values, keep = apply_policy("drop_group", scores_of([1.0, 2.0, None, 4.0]), [0, 0, 1, 1])

    assert keep == [True, True, False, False]
    assert values[:2] == [1.0, 2.0]
    assert math.isnan(values[2])


def test_a_failure_scores_zero_where_the_run_file_says_so():
    scores = scores_of([1.0, None])

    assert apply_policy("score_zero", scores, [0, 0]) == ([1.0, 0.0], [True, True])


@given(st.lists(st.tuples(st.none() | st.floats(-9, 9), st.integers(0, 3))))
def test_what_is_kept_has_a_score_and_what_has_none_is_counted(members):
    scores = scores_of([value for value, _ in members])

    values, keep = apply_policy("drop_group", scores, [group for _, group in members])

    assert all(math.isfinite(v) for v, kept in zip(values, keep, strict=True) if kept)
    assert scores.counts()["reward/errors"] == scores.values.count(None)


def test_failures_are_counted_by_kind():
    failures = [
        Failure(0, "timeout", "", "f"),
        Failure(1, "not_a_number", "", "f"),
        Failure(2, "timeout", "", "f"),
    ]

    counts = Scores([None] * 3, failures, recovered=1).counts()

    assert counts == {"reward/errors": 1.0, "reward/timeouts": 2.0, "reward/recovered": 1.0}


def test_a_wrong_type_ends_the_run_under_every_policy():
    wrong_type = scores_of([1.0, None], kind="wrong_type").failures
    not_a_number = scores_of([1.0, None], kind="not_a_number").failures

    assert [fatal(p, wrong_type) for p in ("fail", "drop_group", "score_zero")] == wrong_type * 3
    assert fatal("fail", not_a_number) == not_a_number[0]
    assert fatal("drop_group", not_a_number) is None


def test_a_failure_names_function_row_sample_and_step(rows):
    failure = Failure(
        1, "exception", "raised KeyError: 'x7'", "rewards.py:f", "  rewards.py:9\n    9 | code"
    )
    scores = Scores([1.0, None], [failure])

    with pytest.raises(RewardError) as caught:
        scores.check("fail", rows(2), [0, 2], step=2)

    assert str(caught.value) == snapshot("""\
the reward function `rewards.py:f` raised KeyError: 'x7'
  data.jsonl:2 (row 1), sample 2, step 2
  rewards.py:9
    9 | code
help: mend the function or the row; or set `on_reward_error` to "drop_group" or "score_zero" to go on without it\
""")
    scores.check("drop_group", rows(2), [0, 2], step=2)
