"""`flowrl simulate`: a run file's steps, beside what its plan predicts."""

import json
from math import inf, nan
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from flowrl.errors import DataError, EngineError, RunFileError
from flowrl.report.options import settings
from flowrl.report.simulation import simulation_text

GRPO = str(Path(__file__).parents[2] / "examples" / "plan" / "grpo.toml")
SETS = settings("8xH100", "256:600/2048")


def test_a_simulation_is_told_beside_its_plan():
    assert simulation_text(GRPO, SETS) == snapshot("""\
grpo on 8xH100: 20 steps simulated with seed 0
seconds a step: median 26.42, p10 26.27, p90 26.54; the plan predicts 26.28
pool main: 8 GPUs, simulated as 4 workers, busy 99.3% of the time\
""")


def test_failures_are_counted_with_what_they_took():
    text = simulation_text(GRPO, SETS, failures=0.5)

    assert text.splitlines()[-1] == snapshot("failures: 2; 1253 s lost of 1781 s (70.4%)")


def test_the_trace_is_written_and_named(tmp_path):
    text = simulation_text(GRPO, SETS, steps=1, trace=tmp_path / "trace.json")

    assert text.endswith(f"trace: {tmp_path}/trace.json, for https://ui.perfetto.dev")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_trace_that_can_not_be_written():
    with pytest.raises(DataError) as refused:
        simulation_text(GRPO, SETS, steps=1, trace=Path("/nowhere/trace.json"))

    assert str(refused.value) == snapshot("""\
`/nowhere/trace.json` can't be written: No such file or directory
help: name a file in a folder that exists: `--trace trace.json`\
""")


def test_rounds_that_fill_no_batch_are_told_without_rewards_as_none_are_simulated():
    few = ("program.file=dapo", "program.rounds=2", "workload.rounds=5")

    with pytest.raises(EngineError) as missing:
        simulation_text(GRPO, (*SETS, *few), steps=1)

    assert missing.value.problem == snapshot(
        "sample_until: 128 groups wanted, 52 of 256 prompts kept in 2 rounds"
    )
    assert "dapo.py" in missing.value.where


def test_numbers_that_make_no_simulation():
    with pytest.raises(RunFileError) as refused:
        simulation_text(GRPO, SETS, steps=0, failures=-1.0)

    assert str(refused.value) == snapshot("""\
`--steps 0` must be a number above 0; `--failures -1` must be a number above 0
help: `flowrl simulate --help` says what they are\
""")


@pytest.mark.parametrize("number", [{"failures": inf}, {"failures": nan}, {"restart": nan}])
def test_numbers_that_are_none_make_no_simulation(number):
    with pytest.raises(RunFileError, match="must be a number above 0"):
        simulation_text(GRPO, SETS, **number)


def test_failures_of_which_no_step_would_end_are_refused():
    with pytest.raises(RunFileError) as refused:
        simulation_text(GRPO, SETS, failures=1e-6)

    assert str(refused.value) == snapshot("""\
`--failures 1e-06` is 5.84e+04 failures in a step of 26.3 s on 8 GPUs: almost none would finish
help: give the hours between failures of one GPU: 50000 on H100s\
""")
