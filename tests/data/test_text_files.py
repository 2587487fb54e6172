import json

import pytest
from inline_snapshot import snapshot

from flowrl.data.record import RowError
from flowrl.errors import DataError


def prompts(data):
    return [row.prompt for row in data.cursor().take(data.rows).rows]


def test_jsonl_rows_are_named_by_their_line(opened, written):
    written("a.jsonl", '{"prompt": "one", "n": 1}\n\n{"prompt": "two", "n": 2}\n')

    data = opened("a.jsonl", shuffle=False)

    rows = data.cursor().take(2).rows
    assert [(row.id, row.where, row.prompt, row.columns["n"]) for row in rows] == [
        (0, "a.jsonl:1", "one", 1),
        (1, "a.jsonl:3", "two", 2),
    ]


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000, '{"a":' * 100_000])
def test_a_number_or_a_nesting_that_python_does_not_read_is_a_bad_line(opened, written, value):
    written("a.jsonl", f'{{"prompt": "a"}}\n{{"prompt": "b", "answer": {value}\n')

    with pytest.raises(RowError, match="the line can't be read: ") as caught:
        opened("a.jsonl")

    assert caught.value.where == "a.jsonl:2"
    assert opened("a.jsonl", on_bad_row="skip").rows == 1


BAD = b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n{"prompt": \n[1]\n{"prompt": 3}\n{"prompt": " "}\n{}\n'


def test_each_kind_of_bad_line_is_an_error_with_file_and_line(opened, written):
    texts = []

    for number, line in enumerate(BAD.splitlines(keepends=True)[1:]):
        written(f"{number}.jsonl", line)
        with pytest.raises(RowError) as caught:
            opened(f"{number}.jsonl")
        texts.append(str(caught.value))

    assert texts == snapshot(
        [
            """\
the line is not UTF-8: byte 0xe9 at 16
0.jsonl:1
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
            """\
the line is not JSON: Expecting value at character 1
1.jsonl:1
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
            """\
expected an object with a key a column; got list
2.jsonl:1
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
            """\
column `prompt` must be text; got int 3
3.jsonl:1
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
            """\
column `prompt` is blank
4.jsonl:1
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
            """\
column `prompt` is missing; the row has no columns
5.jsonl:1
help: name a column that the rows have, as `prompt_key` does; correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
        ]
    )


def test_bad_lines_are_counted_and_skipped_where_the_run_file_says_so(opened, written):
    written("bad.jsonl", BAD)

    data = opened("bad.jsonl", on_bad_row="skip")

    assert prompts(data) == ["a"]
    assert data.skipped == snapshot(
        {"bad UTF-8": 1, "bad JSON": 1, "wrong type": 2, "empty prompt": 1, "missing column": 1}
    )
    assert data.sentence() == snapshot(
        "bad.jsonl: 1 row, 6 skipped: 1 bad UTF-8 (bad.jsonl:2), 1 bad JSON (bad.jsonl:3), 2 wrong type (bad.jsonl:4, bad.jsonl:5), 1 empty prompt (bad.jsonl:6), 1 missing column (bad.jsonl:7)"
    )


def test_a_byte_order_mark_is_no_part_of_the_first_row(opened, written):
    written("a.jsonl", b'\xef\xbb\xbf{"prompt": "one"}')
    written("a.csv", b"\xef\xbb\xbfprompt\none")

    assert prompts(opened("a.jsonl")) == prompts(opened("a.csv")) == ["one"]


def test_a_lone_surrogate_is_an_error_of_its_row(opened, written):
    written("a.jsonl", json.dumps({"prompt": "x\ud800"}))

    with pytest.raises(RowError) as caught:
        opened("a.jsonl")

    assert str(caught.value) == snapshot("""\
the text cannot be encoded: 'utf-8' codec can't encode character '\\ud800' in position 1: surrogates not allowed
a.jsonl:1
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""")


def test_csv_fields_stay_text_and_quotes_may_span_lines(opened, written):
    written("a.csv", 'prompt,answer\n"one\nmore",007\ntwo,\n')

    data = opened("a.csv", shuffle=False)

    rows = data.cursor().take(2).rows
    assert [(row.where, row.prompt, row.columns["answer"]) for row in rows] == [
        ("a.csv:2", "one\nmore", "007"),
        ("a.csv:4", "two", None),
    ]


def test_bad_csv_rows_are_named_and_the_others_survive(opened, written):
    written("a.csv", b'prompt,answer\na,1\nb\ncaf\xe9,2\nd,3\ne,"4\n')

    data = opened("a.csv", on_bad_row="skip")

    assert sorted(prompts(data)) == ["a", "d"]
    assert [str(skip) for skip in data.skips] == snapshot(
        [
            """\
expected 2 fields (prompt, answer); got 1
a.csv:3
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
            """\
column `prompt` is not UTF-8
a.csv:4
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
            """\
the row is not CSV: unexpected end of data
a.csv:6
help: correct the row, or set `on_bad_row = "skip"` to leave such rows out\
""",
        ]
    )


def test_csv_columns_of_one_name_are_an_error(opened, written):
    written("a.csv", "prompt,prompt\na,b\n")

    with pytest.raises(DataError) as caught:
        opened("a.csv")

    assert str(caught.value) == snapshot("""\
two columns have one name: ['prompt', 'prompt']
a.csv:1\
""")
