"""The whole chain, two steps a stage, by its own commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
CHAIN = Path(__file__).parents[3] / "examples" / "chain" / "chain.py"


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Return the folder and what was printed."""
    folder = tmp_path_factory.mktemp("chain") / "run"
    command = [sys.executable, CHAIN, "--quick", "--folder", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_stage_starts_from_the_one_before(chain):
    folder, _ = chain

    rejected = {pair["rejected"] for pair in records(folder / "pairs.jsonl")}
    assert rejected
    assert rejected <= {x["completion"] for x in records(folder / "samples" / "samples.jsonl")}
    for stage, role in (("sft", "policy"), ("reward_model", "model"), ("ppo", "policy")):
        assert (folder / stage / "checkpoint" / role / "model.safetensors").is_file()


def test_ppo_trains_on_the_reward_model_and_is_read_on_the_true_reward(chain):
    folder, _ = chain

    rows = records(folder / "ppo" / "metrics.jsonl")
    trained = [row["reward"] for row in rows if "reward" in row]
    held_out = [row["eval/reward"] for row in rows if "eval/reward" in row]
    assert len(trained) == 2
    assert len(held_out) == 2
    assert all(0 <= x <= 1 for x in held_out)
    assert not any(x in (0, 1) for x in trained)


def test_it_reports_the_true_reward_before_and_after(chain):
    _, printed = chain

    assert "true reward on held-out problems, before and after PPO" in printed
