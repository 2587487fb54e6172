"""The run files in `examples/`."""

from pathlib import Path

import pytest

from flowrl.config import load_run_file
from flowrl.data.spec import DataSpec
from flowrl.rewards.spec import RewardSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_FILES = sorted(EXAMPLES.rglob("*.toml"))


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_example_is_a_valid_run_file(path):
    run = load_run_file(path)

    data = [run.structure(DataSpec, key) for key in run.data_keys().values()]
    called = run.reward.functions.keys() - run.reward.models
    rewards = [run.structure(RewardSpec, f"reward.{name}") for name in called]
    assert data or rewards
    if run.eval:
        assert run.structure(DataSpec, "eval.data").source
