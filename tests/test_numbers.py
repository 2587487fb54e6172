"""`docs/numbers.md` names every op of the mathematics, with its options and their defaults."""

import inspect
import re
from pathlib import Path

import pytest

from flowrl import ops
from flowrl.runtime.graph.calls import builtin
from tests.ops.test_watch import MEASURED, measured

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "numbers.md").read_text()
HEADINGS = dict(re.findall(r"^### `(\w+)\((.*)\)`$", TEXT, re.MULTILINE))
ROOMS = [
    "advantage",
    "covariance",
    "divergence",
    "division",
    "importance",
    "loss",
    "metrics",
    "reduce",
    "returns",
    "reward",
    "surrogate",
]
MATHEMATICS = [
    name for name in ops.__all__ if getattr(ops, name).__module__.rpartition(".")[2] in ROOMS
]


def test_every_op_of_the_mathematics_has_a_heading():
    assert sorted(HEADINGS) == MATHEMATICS


@pytest.mark.parametrize("name", HEADINGS)
def test_a_heading_has_the_options_and_defaults_of_the_op(name):
    signature = inspect.signature(getattr(ops, name))

    bare = [
        p.replace(annotation=p.empty, default=Shown(p.default)) if p.default is not p.empty
        else p.replace(annotation=p.empty)
        for p in signature.parameters.values()
    ]  # fmt: skip

    assert f"({HEADINGS[name]})" == str(inspect.Signature(bare))


def test_options_that_peers_disagree_on_are_options_of_an_op():
    rows = [line.split("|")[2] for line in TEXT.splitlines() if line.startswith("| ")]
    named = {name for here in rows for name in re.findall(r"(\w+)=", here)}

    options = {name for heading in HEADINGS.values() for name in re.findall(r"(\w+)=", heading)}
    assert len(named) > 8
    assert sorted(named - options) == []


class Shown:
    """A default as the page writes it: text in double quotes."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f'"{self.value}"' if isinstance(self.value, str) else repr(self.value)


def test_what_an_update_measures_is_named():
    names = {name for loss in MEASURED for name in measured(loss)}

    assert [name for name in sorted(names) if f"`{name}`" not in TEXT] == []


def test_every_function_that_is_an_op_is_one_of_the_pure_functions():
    """Each names `module:function` of `flowrl.functional`, found when it first runs."""
    sources = "".join((ROOT / "flowrl" / "ops" / f"{room}.py").read_text() for room in ROOMS)
    named = set(re.findall(r'"(\w+:\w+)"', sources))

    assert len(named) > 30
    assert all(callable(builtin(name)) for name in named)
