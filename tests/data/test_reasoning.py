import json
import pickle

import pytest
from inline_snapshot import snapshot

from flowrl.data.reasoning import scorer, task_rows
from flowrl.errors import DataError

OPTIONS = {"size": 5, "seed": 1, "min_terms": 2, "max_terms": 2}


def rows(task, **options):
    return [columns for _, columns in task_rows(task, options)]


def test_rows_have_question_answer_and_entry_and_repeat_by_seed():
    found = rows("chain_sum", **OPTIONS)

    assert found == rows("chain_sum", **OPTIONS)
    assert set(found[0]) == {"question", "answer", "entry"}
    assert json.loads(json.dumps(found[0]["entry"]))["answer"] == found[0]["answer"]


def test_the_question_is_the_prompt_and_the_answer_the_completion(opened, tokenizer):
    data = opened(
        "reasoning_gym:chain_sum",
        kind="examples",
        options=OPTIONS,
        needs={"entry": "the reward `chain`"},
    )

    batch = data.cursor().take(1)

    assert batch.rows[0].prompt == batch.rows[0].columns["question"]
    answer = tokenizer.decode(batch.tokens.rows()[0][:-1])
    assert answer == batch.rows[0].columns["answer"]


def test_options_may_follow_the_task(opened):
    assert opened("reasoning_gym:chain_sum?size=7&seed=3").rows == 7


def test_the_scorer_survives_pickling_and_gives_no_credit_to_wrong_answers():
    entries = [columns["entry"] for columns in rows("spell_backward", size=3, seed=0)]
    right = [entry["answer"] for entry in entries]
    score = pickle.loads(pickle.dumps(scorer("spell_backward")))

    assert score(["p"] * 3, [f" {text}\n" for text in right], entry=entries) == [1.0] * 3
    assert score(["p"] * 3, [text[:-1] for text in right], entry=entries) == [0.0] * 3


def test_letters_after_a_right_answer_make_it_wrong():
    """spell_backward itself scores most of these 1, but for rounding."""
    entries = [columns["entry"] for columns in rows("spell_backward", size=50, seed=0)]

    found = scorer("spell_backward")(
        ["p"] * 50, [entry["answer"] + "x" for entry in entries], entry=entries
    )

    assert found == [0.0] * 50


def test_the_last_number_may_be_taken_from_a_sentence():
    (row,) = rows("chain_sum", size=1, seed=1)
    text = f"First 3, so it is {row['answer']}."

    assert scorer("chain_sum")(["p"], [text], entry=[row["entry"]]) == [0.0]
    assert scorer("chain_sum", extract="last_number")(["p"], [text], entry=[row["entry"]]) == [1.0]


def test_an_answer_that_the_task_cannot_parse_is_wrong_and_a_broken_entry_is_an_error():
    (row,) = rows("prime_factorization", size=1, seed=1)
    score = scorer("prime_factorization")

    assert score(["p"], ["I think so"], entry=[row["entry"]]) == [0.0]
    with pytest.raises(KeyError):
        score(["p"], ["I think so"], entry=[{}])


@pytest.mark.parametrize(
    ("task", "options"),
    [("chain_sums", {}), ("chain_sum", {"sizes": 3}), ("chain_sum", {"size": -3})],
)
def test_a_wrong_task_or_option_is_an_error(task, options):
    with pytest.raises(DataError) as rows_error:
        rows(task, **options)
    with pytest.raises(DataError) as scorer_error:
        scorer(task, **options)

    assert str(rows_error.value) == str(scorer_error.value)
    assert str(rows_error.value).splitlines()[0] in snapshot(
        [
            "reasoning_gym has no task `chain_sums` (did you mean `chain_sum`?)",
            "the task has no option `sizes` (did you mean `size`?)",
            "the task refuses its options: size must be positive",
        ]
    )


def test_an_unknown_extractor_is_an_error():
    with pytest.raises(DataError, match="extract"):
        scorer("chain_sum", extract="first_number")
