"""The graph of a run file's program."""

import pytest
from inline_snapshot import snapshot

import flowrl as fl
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from programs.grpo import grpo


def test_a_correction_table_corrects_the_program(load):
    run = load("[correction]\nlevel = 'sequence'\nmode = 'mask'\nlow = 0.5\n")

    traced = trace_run(run)

    right = fl.corrected(grpo, level="sequence", mode="mask", low=0.5, high=2.0)
    assert fl.trace(right, samples=4).as_text() == traced.as_text()


def test_a_correction_that_contradicts_itself_is_marked(load):
    with pytest.raises(RunFileError) as error:
        trace_run(load("[correction]\nlow = 3.0\n"))

    assert str(error.value) == snapshot("""\
corrected: `low` must not be above `high`; got 3.0 and 2.0
  run.toml:20
   20 | [correction]
         ^^^^^^^^^^
help: both bound the weight\
""")
