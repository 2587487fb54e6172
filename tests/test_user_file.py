"""What users' Python raises is told, whatever it is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.errors import DataError
from flowrl.user_file import described, locating, syntax_place

ODD = st.none() | st.integers() | st.text(max_size=3) | st.binary(max_size=3) | st.just(object())
ODD |= st.sampled_from([__file__, 1, 10**20, -(10**20)])
PLACE = ["filename", "lineno", "offset", "text", "end_lineno", "end_offset"]


@given(st.fixed_dictionaries({name: ODD for name in PLACE}))
def test_a_syntax_error_is_told_whatever_its_place_is(place):
    error = SyntaxError("invalid syntax")
    for name, value in place.items():
        setattr(error, name, value)

    assert described(error) == "SyntaxError: invalid syntax"
    assert isinstance(syntax_place(error), str)


@pytest.mark.parametrize("place", [(), (__file__, None, None, None), ("x.py", 1, "1", 7, 1, "2")])
def test_a_syntax_error_without_a_place_is_told_where_it_was_raised(tmp_path, place):
    file = tmp_path / "mine.py"
    file.write_text("def f(error): raise error")
    names: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), names)

    with pytest.raises(DataError) as caught, locating(file, DataError):
        names["f"](SyntaxError("no", *filter(None, [place])))

    assert str(caught.value).splitlines()[:2] == [
        "running mine.py raised SyntaxError: no",
        "  mine.py:1",
    ]


def test_a_mark_stays_in_its_line():
    error = SyntaxError("no", (__file__, 1, 10**20, None))

    assert syntax_place(error).splitlines()[1:] == [
        '    1 | """What users\' Python raises is told, whatever it is."""',
        " " * 64 + "^",
    ]


def test_an_attribute_that_has_no_name_is_told():
    file = Path(__file__)

    with pytest.raises(DataError, match="raised AttributeError: no"), locating(file, DataError):
        raise AttributeError("no", name=3, obj=None)


def test_a_note_may_begin_with_blanks():
    error = ValueError("no")
    error.add_note("  a note")

    assert described(error) == "ValueError: no\n  a note"
