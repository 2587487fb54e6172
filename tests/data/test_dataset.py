import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.data.dataset import Dataset
from flowrl.errors import DataError


@pytest.fixture
def made(opened, written):
    def call(count, **keys):
        written("a.jsonl", "\n".join(json.dumps({"prompt": f"p{n}"}) for n in range(count)))
        return opened("a.jsonl", **keys)

    return call


def ids(cursor, count):
    return [row.id for row in cursor.take(count).rows]


def test_every_row_is_drawn_once_an_epoch_and_epochs_differ(made):
    cursor = made(24).cursor()

    epochs = [ids(cursor, 24) for _ in range(3)]

    assert [sorted(epoch) for epoch in epochs] == [list(range(24))] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_the_order_depends_on_the_seed_and_stays_the_same(made):
    assert list(made(8, seed=3, shuffle=True).order(1)) == snapshot([1, 5, 4, 0, 6, 2, 7, 3])
    assert list(made(8).order(0)) != list(made(8, seed=1).order(0))
    assert list(made(8, shuffle=False).order(5)) == list(range(8))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.integers(1, 9), max_size=8), st.integers(0, 30))
def test_a_cursor_put_at_a_position_goes_on_as_if_it_had_never_stopped(data, takes, stop):
    whole = ids(data.cursor(), 30 + sum(takes))
    cursor = data.cursor()
    cursor.position = stop

    drawn = [id for count in takes for id in ids(cursor, count)]

    assert drawn == whole[stop : stop + sum(takes)]
    assert cursor.position == stop + sum(takes)


@pytest.fixture
def data(made) -> Dataset:
    return made(7)


def test_finite_epochs_end_with_an_error_and_lose_no_row(made):
    cursor = made(5, epochs=2).cursor()
    cursor.take(8)

    with pytest.raises(DataError) as caught:
        cursor.take(3)

    assert str(caught.value) == snapshot("""\
3 rows were asked for, and 2 are left of 2 epochs of 5 rows
a.jsonl
help: raise `epochs`, leave it out to go on for ever, or train fewer steps\
""")
    assert cursor.position == 8
    assert len(cursor.take(2).rows) == 2


def test_a_prompt_that_leaves_no_room_to_sample_is_named_with_its_row(made):
    data = made(11)  # the last prompt, p10, is the longest
    most = max(len(entry.context) for entry in data.entries)
    data.check_prompts(most, "")

    with pytest.raises(DataError) as caught:
        data.check_prompts(most - 1, "`max_model_len` = 9 leaves 2 beside 7 of a completion")

    assert str(caught.value) == snapshot("""\
the prompt has 4 tokens; `max_model_len` = 9 leaves 2 beside 7 of a completion
  a.jsonl:11
help: raise it, or set `max_prompt_tokens = 3` and `on_long_prompt` to "skip" or "truncate_left"\
""")
