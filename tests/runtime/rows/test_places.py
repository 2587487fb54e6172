import torch
from hypothesis import given
from hypothesis import strategies as st

from flowrl.functional.ragged import Ragged
from flowrl.runtime.rows.places import parents, ranges, take_rows

rows = st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), max_size=6))
def test_ranges_count_on_from_each_start(spans):
    starts, lengths = (torch.tensor([span[i] for span in spans], dtype=torch.int64) for i in (0, 1))

    found = ranges(starts, lengths)

    assert found.tolist() == [start + i for start, length in spans for i in range(length)]


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
def test_parents_name_the_prompt_of_each_sample(tree):
    samples = torch.tensor([len(prompt) for prompt in tree])
    tokens = torch.tensor([count for prompt in tree for count in prompt], dtype=torch.int64)

    found = parents((samples, tokens))

    assert found.tolist() == [i for i, prompt in enumerate(tree) for _ in prompt]


@given(rows, st.data())
def test_rows_are_taken_by_number_and_more_than_once(given_rows, data):
    numbers = data.draw(st.lists(st.integers(0, len(given_rows) - 1), min_size=1, max_size=9))

    taken = take_rows(Ragged.of_rows(given_rows, torch.int64), torch.tensor(numbers))

    assert [row.tolist() for row in taken.rows()] == [given_rows[i] for i in numbers]
