from hypothesis import given
from hypothesis import strategies as st

from flowrl.rewards.call import Fault
from flowrl.rewards.chunks import Tally
from flowrl.rewards.resolve import Columns
from flowrl.rewards.routes import Route, Target
from flowrl.runtime.rows import Row

TAKES = Columns(frozenset(), frozenset({"level"}))
ROUTE = Route(None, {"": Target("rewards.py:f", TAKES)})


def tally_of(has_level, batch):
    rows = [Row(i, "", f"p{i}", {"level": i} if has else {}) for i, has in enumerate(has_level)]
    return Tally(ROUTE, rows, [f"c{i}" for i in range(len(rows))], batch)


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
