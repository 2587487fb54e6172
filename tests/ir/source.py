"""Programs given as text: their errors have the same line numbers wherever the text stands."""

import linecache
from textwrap import dedent

import pytest

import flowrl as fl

FILE = "example.py"
HEAD = "import flowrl as fl\nfrom flowrl import ops\n"


def run(text):
    """Return the names that a module `example.py` of this text defines; its first line is 3."""
    source = HEAD + dedent(text).lstrip("\n")
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    names = {"__name__": "example"}
    exec(compile(source, FILE, "exec"), names)
    return names


def traced(text, **hyperparameters):
    """Return the graph of the last program of a module of this text."""
    programs = [made for made in run(text).values() if isinstance(made, fl.Program)]
    return programs[-1].trace(hyperparameters).graph


def refusal(text, **hyperparameters):
    """Return the message with which a program of this text is refused."""
    with pytest.raises(fl.FlowrlError) as error:
        traced(text, **hyperparameters)
    return str(error.value)
