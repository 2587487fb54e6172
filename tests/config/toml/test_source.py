"""Where keys stand, and `--set`."""

import tomllib
from pathlib import Path

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.config.toml.source import Assignment, Source
from flowrl.errors import RunFileError

TEXT = '''\
# a comment
top = 1

[a]
plain = "b = 1"
dotted.key = 2
inline = { x = 1, y = { z = 2 } }
long = [
  1,  # [not.a.table]
  2,
]
text = """
[nor.this]
x = 1
"""
"quoted key" = 3

[a.b.c]
deep = 4

[[list]]
name = "first"

[[list]]
name = "second"
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("a",), 4),
        (("a", "plain"), 5),
        (("a", "dotted"), 6),
        (("a", "dotted", "key"), 6),
        (("a", "inline", "y", "z"), 7),
        (("a", "long"), 8),
        (("a", "long", 1), 8),
        (("a", "text"), 12),
        (("a", "quoted key"), 16),
        (("a", "b", "c"), 18),
        (("a", "b", "c", "deep"), 19),
        (("list", 0, "name"), 22),
        (("list", 1), 24),
        (("list", 1, "name"), 25),
        (("a", "missing"), 4),
        (("missing",), 0),
    ],
)
def test_a_key_or_the_table_that_lacks_it_has_a_line(path, line):
    source = Source(Path("run.toml"), TEXT)

    assert source.line(path) == line


keys = st.text("abc", min_size=1, max_size=3)
values = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=5),
    lambda inner: st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(keys, values, min_size=1, max_size=3))
def test_each_key_of_any_table_stands_where_its_name_is_written(tables):
    text = tomlkit.dumps(tables)
    source = Source(Path("run.toml"), text)

    for key in tomllib.loads(text):
        assert key in text.split("\n")[source.line((key,)) - 1]


def test_the_excerpt_marks_the_key(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(TEXT)
    source = Source.read(file)

    assert source.where(("a", "b", "c", "deep")) == snapshot("""\
  run.toml:19
   19 | deep = 4
        ^^^^\
""")
    assert source.where(("a", "inline", "y", "z")) == snapshot("""\
  run.toml:7
    7 | inline = { x = 1, y = { z = 2 } }
                                ^\
""")


def test_a_set_key_is_located_at_its_set():
    source = Source(Path("run.toml"), TEXT, (Assignment.parse("a.b.c.deep=5"),))

    assert source.where(("a", "b", "c", "deep")) == snapshot("  --set a.b.c.deep=5")


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a.b=1", ("a", "b"), 1),
        ("a.b=1e-6", ("a", "b"), 1e-6),
        ("a=true", ("a",), True),
        ("a=[1, 2]", ("a",), [1, 2]),
        ("a={x = 1}", ("a",), {"x": 1}),
        ('a="1"', ("a",), "1"),
        ("a=path.py:f", ("a",), "path.py:f"),
        ("a=x=y", ("a",), "x=y"),
        ("a=", ("a",), ""),
        ('a."b.c"=1', ("a", "b.c"), 1),
        ("a=1\nb=2", ("a",), "1\nb=2"),
    ],
)
def test_a_set_is_toml_or_else_a_string(text, path, value):
    assignment = Assignment.parse(text)

    assert (assignment.path, assignment.value) == (path, value)


@pytest.mark.parametrize("text", ["a.b", "=1", "a b=1", "a..b=1", ""])
def test_a_set_without_key_or_value_is_refused(text):
    with pytest.raises(RunFileError, match="`--set` takes a dotted key, `=` and a value"):
        Assignment.parse(text)


def test_a_later_set_wins_and_makes_its_tables():
    source = Source(Path("run.toml"), "", tuple(map(Assignment.parse, ["a.b=1", "a.b=2", "c.d=3"])))

    assert source.tables() == {"a": {"b": 2}, "c": {"d": 3}}


def test_a_set_through_a_value_is_refused():
    source = Source(Path("run.toml"), TEXT, (Assignment.parse("a.plain.x=1"),))

    with pytest.raises(RunFileError) as caught:
        source.tables()

    assert str(caught.value) == snapshot("""\
`a.plain` is a value and has no keys
  --set a.plain.x=1
help: set the whole value, or one that the run file gives as a table\
""")


def test_text_that_is_not_toml_is_located(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[a]\nb = = 1\n")

    with pytest.raises(RunFileError) as caught:
        Source.read(file).tables()

    assert str(caught.value) == snapshot("""\
not TOML: Invalid value
  run.toml:2
    2 | b = = 1
            ^\
""")


@pytest.mark.parametrize("word", ["None", "null", "True", "False", "nothing", "'"])
def test_a_word_of_another_language_is_told_with_what_to_write(word, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(f"[a]\nb = {word}  # c\n")

    with pytest.raises(RunFileError) as caught:
        Source.read(file).tables()

    assert caught.value.hint == WRITTEN[word]


WRITTEN = snapshot(
    {
        "None": "TOML has no null: leave the key out for its default",
        "null": "TOML has no null: leave the key out for its default",
        "True": "write `true`",
        "False": "write `false`",
        "nothing": "",
        "'": "",
    }
)


def test_text_that_ends_too_early_is_located(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[a]\nb = [1,\n")

    with pytest.raises(RunFileError) as caught:
        Source.read(file).tables()

    assert str(caught.value) == snapshot("""\
not TOML: Invalid value (at end of document)
  run.toml:3\
""")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')

    with pytest.raises(RunFileError, match=r"can't read the run file `.*none\.toml`: No such file"):
        Source.read(tmp_path / "none.toml")
    with pytest.raises(RunFileError, match=r"isn't UTF-8(.|\n)*latin\.toml"):
        Source.read(tmp_path / "latin.toml")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xef\xbb\xbfsteps = 1\n")

    source = Source.read(file)

    assert source.tables() == {"steps": 1}
    assert source.where(("steps",)) == snapshot("""\
  run.toml:1
    1 | steps = 1
        ^^^^^\
""")


def test_a_table_that_a_set_made_is_located_at_the_set():
    source = Source(Path("run.toml"), "[a]\nb = 1\n", (Assignment.parse("a.c.d=1"),))

    assert source.where(("a", "c")) == "  --set a.c.d=1"
    assert source.where(("a",)) != "  --set a.c.d=1"


def test_a_file_that_was_edited_after_an_error_is_shown_as_it_is_now(tmp_path):
    file = tmp_path / "run.toml"
    shown = []

    for text in ("top = = 1\n", "top = 1\ntop = 2, 3\n"):
        file.write_text(text)
        with pytest.raises(RunFileError) as error:
            Source.read(file).tables()
        shown.append(error.value.where.splitlines()[1])

    assert shown == ["    1 | top = = 1", "    2 | top = 2, 3"]
