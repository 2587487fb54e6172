import json
import random
from itertools import islice

import pytest
import reasoning_gym

from examples.demo import make_task

FILES = ("train", "validation", "heldout")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")

    make_task.main(folder, seed=0)

    names = [*FILES, "demonstrations"]
    texts = {name: (folder / f"{name}.jsonl").read_text() for name in names}
    return {name: [json.loads(row) for row in text.splitlines()] for name, text in texts.items()}


def word(row):
    return row["prompt"].split()[-1].rstrip("=").lower()


def test_no_word_stands_twice_in_any_of_the_files_whatever_its_case(rows):
    words = [word(row) for name in FILES for row in rows[name]]

    assert len(set(words)) == len(words) == sum(make_task.SIZES.values())


def test_words_have_four_to_seven_letters(rows):
    assert {len(word(row)) for name in FILES for row in rows[name]} == {4, 5, 6, 7}


def test_reasoning_gym_scores_the_entry_that_a_row_carries(rows):
    task = reasoning_gym.create_dataset("spell_backward", size=1, seed=0)
    entry = rows["heldout"][0]["entry"]

    right = task.score_answer(entry["answer"], entry)
    copied = task.score_answer(entry["answer"][::-1], entry)

    assert right == 1
    assert copied < 0.5


def test_demonstrations_are_of_training_problems_only(rows):
    assert {row["prompt"] for row in rows["demonstrations"]} == {
        row["prompt"] for row in rows["train"]
    }


def test_the_teacher_is_right_one_time_in_three(rows):
    answers = {row["prompt"]: row["entry"]["answer"] for row in rows["train"]}

    right = [row["completion"] == answers[row["prompt"]] for row in rows["demonstrations"]]

    assert sum(right) / len(right) == pytest.approx(make_task.RIGHT, abs=0.01)


def test_a_slip_swaps_two_neighbouring_letters():
    rng = random.Random(0)

    written = {make_task.careless("abcd", rng) for _ in range(500)}

    assert written == {"abcd", "dcba", "bacd", "acbd", "abdc"}


def test_another_seed_holds_out_other_words(tmp_path, rows):
    other = {entry["metadata"]["word"] for entry in islice(make_task.entries(1), 64)}

    assert other != {word(row) for row in rows["heldout"][:64]}
