"""A run measured, and what plans then predict."""

from pathlib import Path

import pytest

from flowrl.config.run_file import load_run_file
from flowrl.errors import RunFileError
from flowrl.train.prepare import lower
from flowrl.train.profile import measured, profile_run
from tests.train.test_fit import ON_CPU, by_kind, opened


def test_a_run_is_measured_without_its_warm_up_and_leaves_nothing(folder, tmp_path):
    run = load_run_file(folder.write("grpo"), (*ON_CPU, f'train.folder="{tmp_path}/there"'))
    first = []

    steps = measured(run, lower(run), 2, first.append)

    assert len(steps) == 2
    assert all(done.seconds["update"] > 0 for done in steps)
    assert not list(Path(tmp_path / "there").rglob("*.safetensors"))


@pytest.mark.parametrize("program", ["grpo", "sft"])
def test_a_profile_of_a_real_run_predicts_its_work(folder, program, tmp_path):
    found = profile_run(folder.write(program), ON_CPU, 1, str)
    found.profile.save(tmp_path / "profile.json")

    lengths = f"workload.response_tokens={found.response or 6}"
    given = (f'workload.profile="{tmp_path}/profile.json"', lengths)
    again, _ = opened(str(folder.path / "run.toml"), *given)

    measured = {each.kind: each.measured for each in found.work}
    assert by_kind(again) == pytest.approx(measured, rel=0.05)
    assert not (folder.path / "out").exists()


def test_a_run_file_without_machines_has_no_profile(folder):
    with pytest.raises(RunFileError, match="no machines to plan for"):
        profile_run(folder.write("sft"), (), 1, str)
