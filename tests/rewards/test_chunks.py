from hypothesis import given
from hypothesis import strategies as st

from flowrl.rewards.call import Fault
from flowrl.rewards.chunks import Tally
from flowrl.rewards.resolve import Columns
from flowrl.rewards.routes import Route, Target
from flowrl.runtime.rows.rows import Row

TAKES = Columns(frozenset(), frozenset({"level"}))
ROUTE = Route(None, {"": Target("function `rewards.py:f`", TAKES)})


def tally_of(has_level, batch, policy="drop_group"):
    rows = [Row(i, "", f"p{i}", {"level": i} if has else {}) for i, has in enumerate(has_level)]
    return Tally(ROUTE, rows, [f"c{i}" for i in range(len(rows))], batch, policy)


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 5), st.sets(st.integers(0, 19)))
def test_each_completion_gets_its_own_reply_whatever_the_calls(has_level, batch, bad):
    tally = tally_of(has_level, batch)

    while tally.queue:
        chunk = tally.queue.popleft()
        arguments = tally.arguments(chunk)
        assert len(chunk.indices) <= batch
        assert all(("level" in arguments) == has_level[i] for i in chunk.indices)
        numbers = [float(text[1:]) for text in arguments["completions"]]
        failed = bad.intersection(chunk.indices)
        tally.settle(chunk, Fault("exception", "raised it") if failed else numbers)

    scores = tally.scores()
    expected = [None if i in bad else float(i) for i in range(len(has_level))]
    assert scores.values == expected
    assert [f.index for f in scores.failures] == [i for i, v in enumerate(expected) if v is None]
    assert scores.recovered == 0


def test_a_call_that_fails_where_its_completions_do_not_is_counted():
    tally = tally_of([True] * 4, batch=2)

    while tally.queue:
        chunk = tally.queue.popleft()
        single = len(chunk.indices) == 1
        tally.settle(chunk, [1.0] if single else Fault("timeout", "did not return"))

    assert tally.scores().values == [1.0] * 4
    assert tally.scores().recovered == 2


def test_a_list_of_the_wrong_length_fails_all_completions_of_its_call_and_is_not_repeated():
    tally = tally_of([True] * 4, batch=2)

    first, second = tally.queue.popleft(), tally.queue.popleft()
    tally.settle(first, Fault("wrong_count", "returned 3 scores for 2 completions"))
    tally.settle(second, [1.0, 2.0])

    assert not tally.queue
    assert tally.scores().values == [None, None, 1.0, 2.0]
    assert tally.scores().recovered == 0


def test_under_fail_no_call_is_made_after_the_first_completion_that_fails_alone():
    tally = tally_of([True] * 8, batch=4, policy="fail")
    calls = []

    while tally.queue:
        chunk = tally.queue.popleft()
        calls.append(chunk.indices)
        tally.settle(chunk, Fault("timeout", "did not return") if 1 in chunk.indices else [1.0])

    assert calls == [(0, 1, 2, 3), (0,), (1,)]
    assert tally.over
    assert [failure.index for failure in tally.scores().failures] == [1]
