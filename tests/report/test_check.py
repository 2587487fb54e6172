"""What is said of a run file, its program and its tasks, before anything is loaded."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.programs import builtin_programs, load_program
from flowrl.ir.program import InputKind
from tests.test_cli import RUN, run_file, told  # noqa: F401


def test_check_finds_a_task_that_is_not_there(told, run_file):  # noqa: F811
    task = RUN.replace("train.jsonl", "reasoning_gym:spell_backwards")
    scorer = RUN.replace("reward.py:exact", "reasoning_gym:chain_sums")
    option = "[data.options]\nmin_wrd_len = 3\n"

    assert told("check", run_file("", task))[2] == snapshot("""\
error: `data.source`: reasoning_gym has no task `spell_backwards` (did you mean `spell_backward`?)
  run.toml:17
   17 | source = "reasoning_gym:spell_backwards"
        ^^^^^^
""")
    assert told("check", run_file("", scorer))[2] == snapshot("""\
error: `reward.reward.function`: reasoning_gym has no task `chain_sums` (did you mean `chain_sum`?)
  run.toml:20
   20 | reward = "reasoning_gym:chain_sums"
        ^^^^^^
""")
    found = told("check", run_file(option, task.replace("backwards", "backward")))[2]
    assert found == snapshot("""\
error: `data.source`: the task has no option `min_wrd_len` (did you mean `min_word_len`?)
  run.toml:17
   17 | source = "reasoning_gym:spell_backward"
        ^^^^^^
help: its options are min_word_len, max_word_len, seed, data_file, size
""")


def test_check_says_nothing_of_tasks_without_their_package(told, run_file, monkeypatch):  # noqa: F811
    monkeypatch.setattr("flowrl.train.reasoning_tasks.find_spec", lambda _: None)
    task = RUN.replace("train.jsonl", "reasoning_gym:spell_backwards")

    assert told("check", run_file("", task))[0] == 0


def test_check_finds_data_that_end_before_the_run_whatever_their_files_hold(told, run_file):  # noqa: F811
    file = run_file("", RUN.replace('"train.jsonl"', '"train.jsonl"\nepochs = 3\nlimit = 1000'))

    assert told("check", file)[2] == snapshot("""\
error: `data`: the run draws 3200 rows (`train.steps` = 100 x `train.prompts_per_step` = 32), and there are 3000 at most: `epochs` = 3 x `limit` = 1000
  run.toml:18
   18 | epochs = 3
        ^^^^^^
  run.toml:19
   19 | limit = 1000
        ^^^^^
help: raise `epochs`, leave it out to go on for ever, or train fewer steps
""")
    enough = "train.steps=93", "data.limit=1067", "data.epochs=4"
    assert [told("check", file, "--set", each)[0] for each in enough] == [0, 0, 0]
    assert told("check", file, "--set", "program.file=dapo")[0] == 0


def _models_of(program):
    return {spec.name for spec in load_program(program).inputs if spec.kind is InputKind.MODEL}


def _fits(program):
    inputs = load_program(program).inputs
    data = {spec.data for spec in inputs if spec.kind is InputKind.DATA}
    return _models_of(program) <= {"policy", "reference"} and data == {"Prompts"}


@pytest.mark.parametrize("program", [name for name in builtin_programs() if _fits(name)])
def test_one_run_file_serves_every_program_of_its_models_and_data(told, run_file, program):  # noqa: F811
    rewards = '[reward]\ncorrect = "reward.py:exact"\nformat = "reward.py:exact"'  # two are gdpo's
    file = run_file("", RUN.replace("[reward]", rewards))

    code, out, error = told("check", file, "--set", f"program.file={program}")

    assert (code, error) == (0, "")
    unused = f"`reference` is never read and never loaded: `{program}` has no such model"
    assert (unused in out) == ("reference" not in _models_of(program))
