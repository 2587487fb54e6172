"""Records of sampled texts."""

import math

import pytest
from inline_snapshot import snapshot
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from flowrl.config.tables.schema import LogTable
from flowrl.errors import RunFileError
from flowrl.train.loggers import MetricLog
from flowrl.train.run import run_file


def test_the_first_samples_of_each_step_are_written_with_their_rewards(folder):
    folder.run("grpo", "log.samples=5", "data.shuffle=false")

    sampled = folder.sampled
    assert [(s["step"], s["row"], s["sample"]) for s in sampled[:6]] == snapshot(
        [
            (1, "train.jsonl:1", 0),
            (1, "train.jsonl:1", 1),
            (1, "train.jsonl:1", 2),
            (1, "train.jsonl:1", 3),
            (1, "train.jsonl:2", 0),
            (2, "train.jsonl:5", 0),
        ]
    )
    assert len(sampled) == 3 * 5
    first = sampled[0]
    assert first["prompt"] == "a0:"
    vowels = sum(c in "aeiou" for c in first["completion"]) / 4
    assert first["rewards"] == {"reward": vowels + (first["completion"][:1] == "a")}


def test_logging_samples_changes_nothing(folder):
    first = folder.run("ppo", "log.samples=2")
    again = folder.run("ppo", "train.folder=again")

    assert [r["policy/loss"] for r in first] == [r["policy/loss"] for r in again]
    assert not (folder.path / "again" / "samples.jsonl").exists()


TWO = """
import flowrl as fl
from flowrl import ops

@fl.program
def two(policy: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2), names=("good", "long"))
    advantages = ops.group_advantage(rewards.sum(over="reward"))
    loss = lambda new: ops.token_mean(-new.logprobs * advantages, rollouts.mask)
    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
"""


def test_each_of_several_rewards_is_written(folder):
    (folder.path / "two.py").write_text(TWO)
    (folder.path / "reward.py").write_text(
        "def good(completions):\n    return [0.5] * len(completions)\n"
        "def long(completions):\n    return [len(text) for text in completions]\n"
    )
    rewards = '[reward]\ngood = "reward.py:good"\nlong = "reward.py:long"'

    folder.run("two.py", "log.samples=1", reward=rewards)

    for sample in folder.sampled:
        assert sample["rewards"] == {"good": 0.5, "long": len(sample["completion"])}


def test_a_record_is_valid_json_and_keeps_the_number_of_its_step(tmp_path):
    metrics = {"step": 7.0, "loss": math.nan, "ratio": math.inf, "reward": 0.5}

    with MetricLog(tmp_path, LogTable(tensorboard=False)) as log:
        log.write(3, metrics)

    assert (tmp_path / "metrics.jsonl").read_text() == snapshot(
        '{"step": 3, "metric/step": 7.0, "loss": null, "ratio": null, "reward": 0.5}\n'
    )


def test_tensorboard_has_no_point_for_a_step_without_a_reward(tmp_path, caplog):
    with MetricLog(tmp_path, LogTable()) as log:
        log.write(1, {"reward": math.nan, "loss": 0.5})
        log.write(2, {"reward": 0.25, "loss": 0.5})

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(point.step, point.value) for point in events.Scalars("reward")] == [(2, 0.25)]
    assert len(events.Scalars("loss")) == 2
    assert not caplog.records


@pytest.mark.parametrize("name", ["metrics.jsonl", "ops.jsonl"])
def test_a_disk_that_is_full_when_a_step_is_logged_ends_the_run_with_an_error(folder, name):
    path = folder.write("sft")
    (folder.path / "out").mkdir()
    (folder.path / "out" / name).symlink_to("/dev/full")

    with pytest.raises(RunFileError, match="can't write: No space left on device") as error:
        run_file(path)

    assert error.value.where == f"  {folder.path / 'out'}"
