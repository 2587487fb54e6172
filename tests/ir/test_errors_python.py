"""Golden texts: Python control flow and conversions on traced values."""

from inline_snapshot import snapshot

from tests.ir.source import step_refusal


def test_an_if():
    message = step_refusal("""
        if rewards.mean() > 0.5:
            rewards = -rewards
        return {}
    """)

    assert message == snapshot("""\
Python `if` needs a value that is known now; got bool[], which is known only when the graph runs
  example.py:7
    7 |     if rewards.mean() > 0.5:
               ^^^^^^^^^^^^^^^^^^^^
help: choose with `ops.where(condition, a, b)` or `ops.cond(...)`; for `and`, `or`, `not` write `&`, `|`, `~`\
""")


def test_an_and():
    message = step_refusal("""
        good = (rewards > 0) and (rewards < 1)
        return {}
    """)

    assert message == snapshot("""\
Python `if` needs a value that is known now; got bool[prompt'2, sample'2], which is known only when the graph runs
  example.py:7
    7 |     good = (rewards > 0) and (rewards < 1)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
help: choose with `ops.where(condition, a, b)` or `ops.cond(...)`; for `and`, `or`, `not` write `&`, `|`, `~`\
""")


def test_a_for_loop():
    message = step_refusal("""
        for reward in rewards:
            pass
        return {}
    """)

    assert message == snapshot("""\
Python `for` needs a value that is known now; got f32[prompt'2, sample'2], which is known only when the graph runs
  example.py:7
    7 |     for reward in rewards:
            ^^^^^^^^^^^^^^^^^^^^^^
help: write whole-batch ops, or loop with `ops.scan(body, carry, xs)`\
""")


def test_a_len():
    message = step_refusal("""
        n = len(rewards)
        return {}
    """)

    assert message == snapshot("""\
Python `len` needs a value that is known now; got f32[prompt'2, sample'2], which is known only when the graph runs
  example.py:7
    7 |     n = len(rewards)
                ^^^^^^^^^^^^
help: count with `ops.count(mask)`; sizes are known only when it runs\
""")


def test_an_index():
    message = step_refusal("""
        first = rewards[0]
        return {}
    """)

    assert message == snapshot("""\
Python `[]` needs a value that is known now; got f32[prompt'2, sample'2], which is known only when the graph runs
  example.py:7
    7 |     first = rewards[0]
                    ^^^^^^^^^^
help: choose rows with `ops.select(x, where=condition)`\
""")


def test_an_assignment_to_an_index():
    message = step_refusal("""
        rewards[0] = 1.0
        return {}
    """)

    assert message == snapshot("""\
Python `[] =` needs a value that is known now; got f32[prompt'2, sample'2], which is known only when the graph runs
  example.py:7
    7 |     rewards[0] = 1.0
            ^^^^^^^^^^
help: make a new value with `ops.where(condition, a, b)`\
""")


def test_a_float():
    message = step_refusal("""
        mean = float(rewards.mean())
        return {}
    """)

    assert message == snapshot("""\
Python `float` needs a value that is known now; got f32[], which is known only when the graph runs
  example.py:7
    7 |     mean = float(rewards.mean())
                   ^^^^^^^^^^^^^^^^^^^^^
help: keep it in the graph, or return it as a metric\
""")


def test_an_int():
    message = step_refusal("""
        mean = int(rewards.mean())
        return {}
    """)

    assert message == snapshot("""\
Python `int` needs a value that is known now; got f32[], which is known only when the graph runs
  example.py:7
    7 |     mean = int(rewards.mean())
                   ^^^^^^^^^^^^^^^^^^^
help: keep it in the graph, or return it as a metric\
""")


def test_a_range():
    message = step_refusal("""
        for i in range(rewards.sum()):
            pass
        return {}
    """)

    assert message == snapshot("""\
Python `range` needs a value that is known now; got f32[], which is known only when the graph runs
  example.py:7
    7 |     for i in range(rewards.sum()):
                     ^^^^^^^^^^^^^^^^^^^^
help: loop with `ops.scan(body, carry, xs)`\
""")


def test_an_in():
    message = step_refusal("""
        found = 1.0 in rewards
        return {}
    """)

    assert message == snapshot("""\
Python `in` needs a value that is known now; got f32[prompt'2, sample'2], which is known only when the graph runs
  example.py:7
    7 |     found = 1.0 in rewards
                    ^^^^^^^^^^^^^^
help: compare, and reduce: `(x == 1).float().max()`\
""")
