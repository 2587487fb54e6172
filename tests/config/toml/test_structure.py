"""Tables into classes, without coercion."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.config.toml.structure import OPEN_TO, Invalid, dotted, structure
from flowrl.config.toml.types import Fraction, Positive, accepts, describe


@attrs.frozen
class Inner:
    """A table in a table."""

    size: Positive
    share: Fraction | None = None


@attrs.frozen
class Outer:
    """A table with a key of every kind."""

    name: str
    either: str | list[str] = ""
    word: Literal["a", "b"] = "a"
    pair: tuple[float, float] = (0.0, 1.0)
    limit: int = attrs.field(default=1, validator=attrs.validators.ge(1))
    anything: Mapping[str, Any] = attrs.field(factory=dict)
    inners: dict[str, Inner] = attrs.field(factory=dict, metadata={OPEN_TO: dict})


def problems_of(cls, value, path=()):
    with pytest.raises(Invalid) as caught:
        structure(cls, value, path)
    return str(caught.value)


def test_a_table_becomes_its_class():
    table = {
        "name": "x",
        "either": ["y", "z"],
        "pair": [1, 2.5],
        "anything": {"k": [1]},
        "first": {"size": 3, "share": 1},
    }

    outer = structure(Outer, table)

    assert outer == Outer(
        "x", ["y", "z"], pair=(1.0, 2.5), anything={"k": [1]}, inners={"first": Inner(3, 1.0)}
    )
    assert isinstance(outer.inners["first"].share, float)


def test_every_problem_is_named_with_its_key():
    table = {
        "nmae": "x",
        "either": [1],
        "word": "c",
        "pair": [1],
        "limit": 0,
        "anything": 1,
        "first": {"size": 0, "share": 1.5, "sise": 1},
    }

    assert problems_of(Outer, table, ("table",)) == snapshot("""\
[table] lacks the key `name`, a string
`table.either[0]` must be a string; got 1
`table.word` must be one of "a", "b"; got "c"
`table.pair` must be a list of 2 numbers; got [1]
`table.anything` must be a table; got 1
`table.first.size` must be an integer of at least 1; got 0
`table.first.share` must be a number from 0 to 1; got 1.5
unknown key `sise` in [table.first] (did you mean `size`?)
unknown key `nmae` in [table] (did you mean `name`?)\
""")


def test_a_validator_of_the_class_is_named_with_its_key():
    assert problems_of(Outer, {"name": "x", "limit": 0}, ("data",)) == snapshot(
        "`data.limit` must be >= 1: 0"
    )


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (int, 1.0),
        (int, "1"),
        (int, True),
        (bool, 1),
        (str, 1),
        (float, "1"),
        (float, True),
        (float, float("nan")),
        (float, float("inf")),
        (list[str], "abc"),
        (tuple[int, ...], 1),
        (dict[str, int], []),
        (Inner, "x"),
        (Literal[1], True),
        (Path, 1),
        (str | Callable[..., Any], 1),
    ],
)
def test_no_type_serves_as_another(cls, value):
    with pytest.raises(Invalid):
        structure(cls, value)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (int | None, "an integer"),
        (Positive, "an integer of at least 1"),
        (Fraction | None, "a number from 0 to 1"),
        (tuple[Positive, ...], "a list of integers of at least 1"),
        (tuple[float, float], "a list of 2 numbers"),
        (Sequence[str], "a list of strings"),
        (list[dict[str, str]], "a list of tables"),
        (dict[str, Inner], "a table"),
        (Literal["a", "b"], 'one of "a", "b"'),
        (str | Callable[..., Any], "a string"),
        (Any, "any value"),
    ],
)
def test_a_type_is_described_in_words(cls, words):
    assert describe(cls) == words


toml = st.integers() | st.booleans() | st.text() | st.floats() | st.lists(st.integers())


@given(toml, st.sampled_from([int, bool, str, float, list, Any, int | str | None, list[int]]))
def test_what_is_accepted_comes_out_equal_and_the_rest_is_refused(value, cls):
    if accepts(cls, value):
        assert structure(cls, value) == value
    else:
        with pytest.raises(Invalid):
            structure(cls, value)


def test_a_path_is_written_with_dots_and_brackets():
    assert dotted(("a", "b", 0, "c")) == "a.b[0].c"
