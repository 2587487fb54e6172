import pytest
from inline_snapshot import snapshot

from flowrl.data.record import RowError
from flowrl.data.user import user_rows
from flowrl.errors import DataError

SOURCE = """
from dataclasses import dataclass

ROWS = [{"prompt": "a"}, {"prompt": "b"}]

def rows(count, word="w"):
    for number in range(count):
        yield {"prompt": f"{word}{number}"}

@dataclass
class Words:
    count: "int" = 2

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise RuntimeError("read past the end")
        return {"prompt": f"item{index}"}

def wrong():
    return 3

def words():
    return ["a", "b"]
"""


@pytest.fixture
def source(written):
    written("mine.py", SOURCE)
    return "mine.py:"


def prompts(data):
    return [row.prompt for row in data.cursor().take(data.rows).rows]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("ROWS", {}, ["a", "b"]),
        ("rows", {"count": 2, "word": "x"}, ["x0", "x1"]),
        ("rows?count=2&word=y", {}, ["y0", "y1"]),
        ("Words", {"count": 3}, ["item0", "item1", "item2"]),
    ],
)
def test_rows_come_from_a_list_a_function_or_an_object(opened, source, name, options, expected):
    assert prompts(opened(source + name, options=options, shuffle=False)) == expected


@pytest.mark.parametrize("made", ["pandas.DataFrame(ROWS)", "pyarrow.Table.from_pylist(ROWS)"])
def test_a_table_whose_columns_would_be_its_rows_is_refused(opened, written, made):
    rows = "[{'prompt': 'a'}, {'prompt': 'b'}]"
    written("table.py", f"import pandas, pyarrow\nROWS = {rows}\ntable = lambda: {made}\n")

    with pytest.raises(DataError, match=r"expected rows; got (DataFrame|Table)\n") as caught:
        opened("table.py:table")

    assert caught.value.hint == snapshot(
        'return its rows: `table.to_dict("records")` of pandas, `table.to_dicts()` of polars, `table.to_pylist()` of Arrow'
    )


@pytest.mark.parametrize(
    ("name", "options"), [("row", {}), ("rows", {"counts": 2}), ("wrong", {}), ("ROWS", {"a": 1})]
)
def test_a_name_or_option_that_does_not_fit_is_an_error(opened, source, name, options):
    with pytest.raises(DataError) as caught:
        opened(source + name, options=options)

    assert str(caught.value) in snapshot(
        [
            """\
mine.py has no `row` (did you mean `rows`?)
mine.py:row
help: it has dataclass, ROWS, rows, Words, wrong, words\
""",
            """\
`options` do not fit rows(count, word='w'): missing a required argument: 'count'
mine.py:rows\
""",
            """\
expected rows; got int
mine.py:wrong
help: return a list or another iterable of dicts, or an object with `__len__` and `__getitem__`\
""",
            """\
mine.py has no `row` (did you mean `rows`?)
mine.py:row
help: it has ROWS, rows, Words, wrong, words\
""",
            """\
this is not a function, so it takes no `options`
mine.py:ROWS\
""",
        ]
    )


@pytest.mark.parametrize("body", ["return []", "yield {'prompt': 'a'}"])
def test_an_async_function_is_refused_before_it_is_called(opened, written, body):
    written("late.py", f"async def rows():\n    {body}\n")

    with pytest.raises(DataError, match="got an `async def`"):
        opened("late.py:rows")


def test_a_row_that_is_no_dict_is_a_bad_row(opened, source):
    with pytest.raises(RowError) as caught:
        opened(source + "words")

    assert str(caught.value) == snapshot("""\
expected a dict with a key a column; got str
mine.py:words:1
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""")


def test_a_file_that_does_not_exist_is_an_error(opened):
    with pytest.raises(DataError, match="there is no file"):
        opened("none.py:rows")


SAMPLERS = """
def hardest_first(rows, epoch, seed):
    return sorted(range(len(rows)), key=lambda index: -rows[index].columns["level"])

def one_row(rows, epoch, seed):
    return [(epoch + seed) % len(rows)] * len(rows)

def too_few(rows, epoch, seed):
    return [0]

def out_of_range(rows, epoch, seed):
    return range(1, len(rows) + 1)
"""


@pytest.fixture
def sampled(opened, written):
    written("order.py", SAMPLERS)
    written("a.jsonl", "\n".join(f'{{"prompt": "p{n}", "level": {n}}}' for n in range(3)))
    return lambda name: opened("a.jsonl", sampler=f"order.py:{name}", seed=1)


def test_a_sampler_orders_each_epoch_and_may_repeat_rows(sampled):
    curriculum, repeats = sampled("hardest_first").cursor(), sampled("one_row").cursor()

    assert [row.prompt for row in curriculum.take(4).rows] == ["p2", "p1", "p0", "p2"]
    assert [row.prompt for row in repeats.take(4).rows] == ["p1", "p1", "p1", "p2"]


@pytest.mark.parametrize("name", ["too_few", "out_of_range"])
def test_a_sampler_that_does_not_fit_is_an_error(sampled, name):
    with pytest.raises(DataError) as caught:
        sampled(name).cursor().take(1)

    assert str(caught.value) in snapshot(
        [
            """\
the sampler must give 3 indices from 0 to 2; got 1 of them
order.py:too_few, epoch 0\
""",
            """\
the sampler must give 3 indices from 0 to 2; got 3 among them
order.py:out_of_range, epoch 0\
""",
        ]
    )


def test_a_file_may_import_its_neighbours(opened, written):
    written("words_beside.py", 'WORDS = [{"prompt": "near"}]')
    written("rows.py", "from words_beside import WORDS")

    assert prompts(opened("rows.py:WORDS")) == ["near"]


def test_a_file_that_raises_is_shown_with_its_line(opened, written):
    written("broken.py", "ROWS = [1 / 0]")

    with pytest.raises(DataError) as caught:
        opened("broken.py:ROWS")

    assert str(caught.value) == snapshot("""\
running broken.py raised ZeroDivisionError: division by zero
  broken.py:1
    1 | ROWS = [1 / 0]
                ^^^^^\
""")


NO_EXCEPTIONS = ["BaseException", "asyncio.CancelledError", "SystemExit", "GeneratorExit"]


@pytest.mark.parametrize("error", NO_EXCEPTIONS)
def test_a_file_that_raises_what_is_no_exception_is_shown_with_its_line(opened, written, error):
    written("broken.py", f"import asyncio\nraise {error}('no')")

    with pytest.raises(DataError) as caught:
        opened("broken.py:ROWS")

    assert f"{error.removeprefix('asyncio.')}: no\n  broken.py:2\n" in str(caught.value)


def test_ctrl_c_while_a_file_runs_passes(opened, written):
    written("broken.py", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        opened("broken.py:ROWS")


def test_rows_that_are_left_are_closed_without_an_error(written, tmp_path):
    written(
        "endless.py", "from itertools import count\nROWS = ({'prompt': str(n)} for n in count())"
    )
    rows = user_rows("endless.py:ROWS", {}, tmp_path)

    assert next(rows) == ("endless.py:ROWS:1", {"prompt": "0"})
    rows.close()
    assert list(rows) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [("ROWS = [", "ROWS = ["), ("\nROWS = eval('[')", "ROWS = eval('[')")],
    ids=["the file", "a text that it reads"],
)
def test_what_cannot_be_parsed_is_shown_with_a_line_of_the_file(opened, written, text, line):
    written("broken.py", text)

    with pytest.raises(DataError, match=r"running broken\.py raised SyntaxError: ") as caught:
        opened("broken.py:ROWS")

    assert f" | {line}\n" in str(caught.value)
    assert "broken.py:" in str(caught.value)


def test_notes_of_an_error_are_told_with_it(opened, written):
    written("noted.py", "error = ValueError('no')\nerror.add_note('a note')\nraise error")

    with pytest.raises(DataError, match=r"running noted\.py raised ValueError: no\na note\n"):
        opened("noted.py:ROWS")


RAISING = """
def rows():
    yield {"prompt": "a"}
    yield {"prompt": 1 // 0}

def leaves():
    raise SystemExit(0)

def ends():
    yield {"prompt": "a"}
    raise GeneratorExit

def order(rows, epoch, seed):
    return rows["first"]
"""


def test_a_function_that_raises_midway_is_shown_with_its_line(opened, written):
    written("raising.py", RAISING)
    messages = {}

    for name in ("rows", "leaves", "ends"):
        with pytest.raises(DataError) as caught:
            opened(f"raising.py:{name}")
        messages[name] = str(caught.value)

    assert messages == snapshot(
        {
            "rows": """\
running raising.py raised ZeroDivisionError: integer division or modulo by zero
  raising.py:4
    4 |     yield {"prompt": 1 // 0}
                             ^^^^^^\
""",
            "leaves": """\
running raising.py raised SystemExit: 0
  raising.py:7
    7 |     raise SystemExit(0)
            ^^^^^^^^^^^^^^^^^^^\
""",
            "ends": """\
running raising.py raised GeneratorExit
  raising.py:11
   11 |     raise GeneratorExit
            ^^^^^^^^^^^^^^^^^^^\
""",
        }
    )


LAZY = """
from collections import UserDict

class Row(UserDict):
    def __getitem__(self, key):
        return {}[key]

ROWS = [Row(prompt="a")]
"""


def test_a_row_that_raises_as_it_is_read_is_shown_with_its_line(opened, written):
    written("lazy.py", LAZY)

    with pytest.raises(
        DataError, match=r"running lazy\.py raised KeyError: 'prompt'\n  lazy\.py:6"
    ):
        opened("lazy.py:ROWS")


def test_a_sampler_that_raises_is_shown_with_its_line(opened, written):
    written("raising.py", RAISING)
    written("a.jsonl", '{"prompt": "p"}')

    with pytest.raises(DataError) as caught:
        opened("a.jsonl", sampler="raising.py:order").cursor().take(1)

    assert str(caught.value) == snapshot("""\
running raising.py raised TypeError: list indices must be integers or slices, not str
  raising.py:14
   14 |     return rows["first"]
                   ^^^^^^^^^^^^^\
""")
