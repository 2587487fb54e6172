"""The benchmark of learning: its settings, a result, the table, the plot."""

import json
import tomllib

import pytest
from inline_snapshot import snapshot

from benchmarks.learning import __main__ as learning
from benchmarks.learning import report, train
from benchmarks.learning.report import Outcome
from benchmarks.learning.settings import FOLDER, Settings, over
from flowrl.config.programs import builtin_programs
from flowrl.config.run_file import load_run_file
from flowrl.train.prepare import lower
from tests.train.conftest import folder, make_model, model  # noqa: F401

POINTS = [(0.0, 0, 0.25), (1.0, 1500, 0.5), (2.0, 3000, 0.75)]
READINGS = [dict(zip(("seconds", "samples", "value"), point, strict=True)) for point in POINTS]


def outcome(program="grpo", **settings):
    return Outcome(Settings(program, {}, **settings), {"readings": READINGS})


@pytest.mark.parametrize("name", builtin_programs())
def test_every_program_has_a_run_file_and_a_margin_or_says_why_not(name, tmp_path):
    settings = Settings.read(name)

    if settings.why_not:
        assert settings.margin == 0
        return
    (tmp_path / "run.toml").write_text(settings.as_text())
    lowered = lower(load_run_file(tmp_path / "run.toml"))
    assert lowered.traced.program.name == name
    assert settings.margin > 0


def test_every_file_of_settings_is_of_a_program():
    files = {path.stem for path in FOLDER.glob("*.toml")}

    assert files - {"shared"} == set(builtin_programs())


def test_tables_are_laid_over_others_key_by_key():
    under = {"a": {"x": 1, "y": {"z": 2}}, "b": {"k": 0}}

    assert over(under, {"a": {"y": {"w": 3}}, "c": 4}) == snapshot(
        {"a": {"x": 1, "y": {"z": 2, "w": 3}}, "b": {"k": 0}, "c": 4}
    )


def test_a_program_is_read_before_and_after_training_and_counts_its_samples(folder):  # noqa: F811
    folder.write_rows("heldout.jsonl", [{"prompt": f"{c}9:", "answer": c} for c in "xyz"])
    path = folder.write(added='[eval]\n[eval.data]\nsource = "heldout.jsonl"\n')

    readings = train.train(path, 1e-9, "eval/reward")

    assert [reading.samples for reading in readings] == [0, 16]
    assert readings[0].seconds == 0 < readings[1].seconds
    assert readings[0].value != readings[1].value
    assert (folder.path / "out" / "checkpoint" / "policy" / "tokenizer.json").is_file()


def test_a_program_without_samples_counts_sequences(folder):  # noqa: F811
    path = folder.write("dpo")

    (reading,) = train.train(path, 1e-9, "policy/loss")

    assert reading.samples == 8
    assert reading.value == pytest.approx(0.693, abs=1e-3)


def test_a_result_is_kept_if_it_is_of_the_same_run_file_and_seconds(tmp_path):
    settings = Settings.read("grpo")
    found = {"seconds": 2.0, "run": settings.as_text(), "readings": READINGS}
    (tmp_path / "grpo.json").write_text(json.dumps(found))

    assert learning.result(settings, tmp_path, 2.0) == found
    assert learning.result(settings, tmp_path, 3.0) is None
    assert learning.result(Settings("grpo", {}), tmp_path, 2.0) is None
    assert learning.result(Settings.read("ppo"), tmp_path, 2.0) is None


def test_a_program_is_trained_after_that_whose_result_it_needs():
    first, second = learning.rounds([Settings.read(name) for name in ("distill", "grpo")])

    assert [each.program for each in first] == ["grpo"]
    assert [each.program for each in second] == ["distill"]


def test_the_table_says_what_each_program_came_to():
    settings = [
        Settings("grpo", {}, margin=0.5),
        Settings("ppo", {}, margin=0.6),
        Settings("reward_model", {}, margin=0.2, start=0.5),
        Settings("evaluate", {}, why_not="trains nothing"),
        Settings("raft", {}, margin=0.1),
    ]
    outcomes = {each.program: Outcome(each, {"readings": READINGS}) for each in settings[:3]}

    assert report.table(settings, outcomes) == snapshot("""\
| program | before | after | gain | margin | samples |
|---|---|---|---|---|---|
| grpo | 0.25 | 0.75 | +0.50 | 0.50 | 3,000 |
| ppo | 0.25 | 0.75 | +0.50 | 0.60, missed | 3,000 |
| reward_model | 0.50 | 0.75 | +0.25 | 0.20 | 3,000 |
| evaluate | trains nothing | | | | |
| raft | not run | | | | |\
""")


def test_the_plot_has_a_panel_a_program(tmp_path):
    report.plot([outcome(name) for name in builtin_programs()], tmp_path / "all.svg")

    drawn = (tmp_path / "all.svg").read_text()
    assert all(f">{name}<" in drawn for name in builtin_programs())
    assert len(drawn) < 200_000


def test_the_plot_is_the_same_when_drawn_again(tmp_path):
    for file in ("one.svg", "two.svg"):
        report.plot([outcome()], tmp_path / file)

    assert (tmp_path / "one.svg").read_text() == (tmp_path / "two.svg").read_text()


def test_a_run_file_is_written_as_it_was_read():
    settings = Settings.read("ppo")

    assert tomllib.loads(settings.as_text()) == settings.run
