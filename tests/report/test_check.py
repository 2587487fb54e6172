"""What is said of models and tasks that a run file names, before anything is loaded."""

import pytest
from inline_snapshot import snapshot

from flowrl.config.programs import builtin_programs, load_program
from flowrl.ir.program import Kind
from tests.test_cli import RUN, run_file, told  # noqa: F401


def test_check_says_which_model_folders_are_not_there(told, run_file, tmp_path):  # noqa: F811
    (tmp_path / "train.jsonl").touch()
    file = run_file()
    paths = "models.policy.path=gpt", "models.reference.path=./nowhere"
    hub = "models.policy.path=org/name", "models.reference.path=gpt"
    unread = "models.reference.path=./nowhere", "program.kl_coef=0"

    code, out, _ = told("check", file, "--set", paths[0], "--set", paths[1])
    assert (code, out.splitlines()[-1]) == snapshot(
        (0, "`models.reference.path`: there is no folder `./nowhere` here; a run needs it.")
    )
    assert "no folder" not in told("check", file, "--set", hub[0], "--set", hub[1])[1]
    assert "no folder" not in told("check", file, "--set", unread[0], "--set", unread[1])[1]


def test_check_says_which_files_of_rows_are_not_there(told, run_file, tmp_path):  # noqa: F811
    file = run_file('[eval.data]\nsource = "heldout/*.parquet"\n')

    missing = told("check", file)[1].splitlines()
    (tmp_path / "train.jsonl").touch()
    (tmp_path / "heldout").mkdir()
    (tmp_path / "heldout" / "a.parquet").touch()

    assert [line for line in missing if "no file" in line] == snapshot(
        [
            "`data.source`: there is no file `train.jsonl` here; a run needs it.",
            "`eval.data.source`: there is no file `heldout/*.parquet` here; a run needs it.",
        ]
    )
    assert "no file" not in told("check", file)[1]
    assert "no file `b*`" in told("check", file, "--set", "data.source=b*")[1]
    assert "no file" not in told("check", file, "--set", "data.source=reward.py:exact?n=3")[1]


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


def _models_of(program):
    return {spec.name for spec in load_program(program).inputs if spec.kind is Kind.MODEL}


def _fits(program):
    inputs = load_program(program).inputs
    data = {spec.data for spec in inputs if spec.kind is Kind.DATA}
    return _models_of(program) <= {"policy", "reference"} and data == {"Prompts"}


@pytest.mark.parametrize("program", [name for name in builtin_programs() if _fits(name)])
def test_one_run_file_serves_every_program_of_its_models_and_data(told, run_file, program):  # noqa: F811
    rewards = '[reward]\ncorrect = "reward.py:exact"\nformat = "reward.py:exact"'  # two are gdpo's
    file = run_file("", RUN.replace("[reward]", rewards))

    code, out, error = told("check", file, "--set", f"program.file={program}")

    assert (code, error) == (0, "")
    unused = f"`reference` is never read and never loaded: `{program}` has no such model"
    assert (unused in out) == ("reference" not in _models_of(program))
