"""Programs given as text: their errors have the same line numbers wherever the text stands."""

import linecache
from textwrap import dedent, indent

import pytest

import flowrl as fl

FILE = "example.py"
HEAD = "import flowrl as fl\nfrom flowrl import ops\n"
STEP = """\
@fl.program
def step(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts):
    rollouts = ops.generate(policy, prompts, n=4)
    rollouts, rewards = ops.score("reward", rollouts)
"""


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
    """Return the message with which a module of this text, or its last program, is refused."""
    with pytest.raises(fl.FlowrlError) as error:
        traced(text, **hyperparameters)
    return str(error.value)


def step_refusal(body):
    """Return the message for a program that goes on like this after sampling and scoring."""
    return refusal(STEP + indent(dedent(body).lstrip("\n"), "    "))
