"""Evaluation, in a run and of a checkpoint."""

import pytest
import torch
from inline_snapshot import snapshot
from transformers import AutoModelForCausalLM

from flowrl.cli import main
from flowrl.errors import RewardError, RunFileError
from flowrl.train.evaluate import eval_checkpoint
from tests.train.conftest import ROWS, SCORED

EVAL = """
[eval]
every_steps = {every}
samples = 3
pass_at = [2]
{more}
[eval.data]
source = "heldout.jsonl"
"""


@pytest.fixture
def heldout(folder):
    folder.write_rows("heldout.jsonl", [row | {"prompt": row["prompt"] + ":"} for row in ROWS[:5]])
    return folder


def evaluated(every=1, more=""):
    return EVAL.format(every=every, more=more)


def split(records):
    """Return the records of evaluations and those of steps, without times."""
    kept = [{k: v for k, v in r.items() if not k.startswith("seconds")} for r in records]
    lines = [record for record in kept if any(name.startswith("eval/") for name in record)]
    return lines, [record for record in kept if record not in lines]


def test_an_evaluation_reports_samples_greedy_and_pass_at_k(heldout):
    lines, _ = split(heldout.run(added=evaluated(every=2)))

    assert [line["step"] for line in lines] == [0, 2, 3]
    names = {name.removeprefix("eval/") for name in lines[0]} - {"step"}
    assert names == snapshot(
        {
            "greedy",
            "pass_at_2",
            "reward",
            "reward/errors",
            "reward/recovered",
            "reward/timeouts",
            "tokens",
        }
    )
    assert all(0 <= line["eval/pass_at_2"] <= 1 for line in lines)
    assert lines[0]["eval/reward"] != lines[2]["eval/reward"]


def test_evaluations_without_training_are_equal(heldout):
    lines, _ = split(heldout.run("grpo", "optimizer.learning_rate=0", added=evaluated()))

    assert len({tuple(line.items())[1:] for line in lines}) == 1


@pytest.mark.parametrize("program", ["grpo", "ppo"])
def test_evaluation_never_changes_training(heldout, program):
    runs = {}
    for name, added in (("none", ""), ("each", evaluated()), ("some", evaluated(every=2))):
        records = heldout.run(program, f"train.folder={name}", added=added)
        model = AutoModelForCausalLM.from_pretrained(heldout.path / name / "checkpoint" / "policy")
        runs[name] = split(records)[1], model.state_dict()

    for steps, weights in (runs["each"], runs["some"]):
        assert steps == runs["none"][0]
        assert all(torch.equal(x, runs["none"][1][name]) for name, x in weights.items())


@pytest.mark.parametrize("program", ["grpo", "ppo", "sft", "dpo"])
def test_a_checkpoint_scores_as_the_runs_last_evaluation_did(heldout, program):
    parts = {} if program in ("grpo", "ppo") else {"reward": SCORED}
    records = heldout.run(program, added=evaluated(), **parts)
    said = []

    metrics = eval_checkpoint(
        str(heldout.path / "run.toml"), str(heldout.path / "out" / "checkpoint"), say=said.append
    )

    last = split(records)[0][-1]
    assert {"step": 3, **{name: float(f"{x:.6g}") for name, x in metrics.items()}} == last
    assert said[0] == "heldout.jsonl: 5 rows"
    assert f"eval/reward: {metrics['eval/reward']:.4f}" in said


STUDENT = """
import flowrl as fl
from flowrl import ops

@fl.program
def learn(student: fl.Model, prompts: fl.Prompts):
    rollouts, rewards = ops.score("reward", ops.generate(student, prompts, n=2))
    advantages = ops.group_advantage(rewards)
    loss = lambda new: ops.token_mean(-new.logprobs * advantages, rollouts.mask)
    student, stats = ops.update(student, loss, rollouts)
    return student, stats
"""


def test_a_policy_of_another_name_is_evaluated_too(heldout):
    (heldout.path / "learn.py").write_text(STUDENT)
    path = heldout.write("learn.py", evaluated(), reward=SCORED)
    text = (heldout.path / "run.toml").read_text().replace("policy", "student")
    (heldout.path / "run.toml").write_text(text)

    lines, _ = split(heldout.rerun())

    metrics = eval_checkpoint(path, str(heldout.path / "out" / "checkpoint"), say=lambda _: None)
    assert metrics["eval/reward"] == pytest.approx(lines[-1]["eval/reward"], rel=1e-5)


def test_the_command_prints_the_metrics(heldout, capsys):
    heldout.run("sft", added=evaluated(), reward=SCORED)
    capsys.readouterr()

    code = main(["eval", str(heldout.path / "run.toml"), str(heldout.path / "out" / "checkpoint")])

    printed = capsys.readouterr().out.splitlines()
    assert code == 0
    assert printed[0] == "heldout.jsonl: 5 rows"
    assert f"eval/reward: {heldout.records()[-1]['eval/reward']:.4f}" in printed


def test_sets_change_an_evaluation(heldout):
    heldout.run(added=evaluated())

    path, checkpoint = str(heldout.path / "run.toml"), str(heldout.path / "out" / "checkpoint")
    metrics = eval_checkpoint(path, checkpoint, ("eval.greedy=false",), say=lambda _: None)

    assert "eval/greedy" not in metrics


def test_a_folder_without_a_model_is_no_checkpoint(heldout):
    path = heldout.write(added=evaluated())

    with pytest.raises(RunFileError) as error:
        eval_checkpoint(path, str(heldout.path / "nowhere"))

    assert str(error.value).replace(str(heldout.path), "FOLDER") == snapshot("""\
no checkpoint of `policy`: neither the folder nor its `policy/` has a config.json
  FOLDER/nowhere
help: give a folder that a run wrote, such as runs/NAME/checkpoint\
""")


def test_a_run_file_without_eval_cannot_evaluate(folder):
    with pytest.raises(RunFileError, match=r"has no \[eval\]"):
        eval_checkpoint(folder.write(), "checkpoint")


def test_of_several_rewards_one_must_be_named(heldout):
    two = f'{SCORED}\nother = "reward.py:vowels"'

    with pytest.raises(RunFileError) as error:
        heldout.run("grpo", added=evaluated(), reward=two)

    assert str(error.value) == snapshot("""\
[eval] must say which reward to report: [reward] names reward, other
  run.toml:33
   33 | [eval]
         ^^^^
help: add `reward = "..."` to [eval]\
""")
    lines, _ = split(heldout.run("grpo", 'eval.reward="other"', added=evaluated(), reward=two))
    assert len(lines) == 4


def test_the_checkpoint_is_written_even_if_the_last_evaluation_fails(heldout, capsys):
    heldout.write_rows("heldout.jsonl", [{"prompt": "bad:", "answer": 1}])
    (heldout.path / "reward.py").write_text(
        "def vowels(completions, answer):\n    return [len(a) for a in answer]\n"
    )

    with pytest.raises(RewardError, match="TypeError"):
        heldout.run(added=evaluated(more="at_start = false", every=0))

    assert AutoModelForCausalLM.from_pretrained(heldout.path / "out" / "checkpoint" / "policy")
    assert [record["step"] for record in heldout.records()] == [1, 2, 3]
    assert "the evaluation after step 3 failed" in capsys.readouterr().out


def test_failed_rewards_are_counted_in_evaluations(heldout):
    (heldout.path / "reward.py").write_text(
        "def vowels(prompts, completions):\n"
        "    return [1 / (prompt != 'c2::') for prompt in prompts]\n"
    )

    zero, _ = split(heldout.run("grpo", "reward.on_reward_error=score_zero", added=evaluated()))
    heldout.clean()
    drop, _ = split(heldout.run("grpo", "reward.on_reward_error=drop_group", added=evaluated()))

    assert {line["eval/reward/errors"] for line in zero + drop} == {4}
    assert {line["eval/reward"] for line in zero} == {0.8}
    assert {line["eval/reward"] for line in drop} == {1}
