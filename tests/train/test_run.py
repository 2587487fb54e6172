"""Whole runs."""

import errno
import json
import os
import tomllib
from pathlib import Path

import pytest
import torch
from inline_snapshot import snapshot
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, AutoTokenizer

from flowrl.config.programs import builtin_programs, load_program
from flowrl.errors import RewardError, RunFileError
from flowrl.ir.plan import Plan
from flowrl.ir.program import InputKind
from flowrl.train.checkpoint import save_checkpoint
from flowrl.train.run import run_file
from tests.train.conftest import CRITIC, REFERENCE, SCORED

COUNTED = ["reward/errors", "reward/timeouts", "reward/recovered"]
UPDATED = ["loss", "grad_norm", "learning_rate"]
SAMPLED = ["clip_fraction", "kl_old", "logprob_gap_max"]


def weights(folder, role="policy", load=AutoModelForCausalLM, checkpoint="checkpoint"):
    return load.from_pretrained(folder.path / "out" / checkpoint / role).state_dict()


def metric_names(record):
    return {name for name in record if not name.startswith("seconds") and name != "step"}


@pytest.mark.parametrize(
    ("program", "names"),
    [
        ("sft", [f"policy/{n}" for n in UPDATED]),
        ("dpo", [f"policy/{n}" for n in [*UPDATED, "accuracy"]]),
        (
            "grpo",
            [f"policy/{n}" for n in [*UPDATED, *SAMPLED, "kl"]]
            + ["reward", "tokens/sampled", *COUNTED],
        ),
        (
            "ppo",
            [f"policy/{n}" for n in [*UPDATED, *SAMPLED]]
            + [f"critic/{n}" for n in UPDATED]
            + ["reward", "tokens/sampled", *COUNTED],
        ),
    ],
)
def test_each_step_is_a_record_of_metrics(folder, program, names):
    records = folder.run(program)

    assert [record["step"] for record in records] == [1, 2, 3]
    assert set(names) <= metric_names(records[0])
    assert all(isinstance(value, float | int) for record in records for value in record.values())
    assert records[0]["seconds"] > records[0]["seconds/update"] > 0


@pytest.mark.parametrize("program", ["sft", "dpo", "grpo", "ppo"])
def test_training_changes_the_loss_the_same_way_each_time(folder, program):
    first = folder.run(program)
    again = folder.run(program, "train.folder=again")

    assert again != first  # seconds
    assert [untimed(r) for r in again] == [untimed(r) for r in first]
    assert first[0]["policy/grad_norm"] > 0


def inputs_of(program, kind):
    return {spec.name: spec.data for spec in load_program(program).inputs if spec.kind is kind}


def reads_prompts(program):
    return [*inputs_of(program, InputKind.DATA).values()] == ["Prompts"]


ONLINE = [program for program in builtin_programs() if reads_prompts(program)]
ROLES = sorted({role for program in ONLINE for role in inputs_of(program, InputKind.MODEL)})


@pytest.mark.parametrize("program", ONLINE)
def test_one_run_file_runs_every_program_of_prompts(folder, capsys, program):
    models = [f'[models.{role}]\npath = "{folder.model}"' for role in ROLES if role != "policy"]
    gdpo = 'correct = "reward.py:vowels"\nformat = "reward.py:vowels"'
    parts = {"hyperparameters": "", "models": "\n".join(models), "reward": f"{SCORED}\n{gdpo}"}

    records = folder.run("grpo", f"program.file={program}", "train.steps=2", **parts)

    assert [record["step"] for record in records] == [1, 2]
    said = "".join(capsys.readouterr())
    unused = f"is never read and never loaded: `{program}` has no such model"
    assert [role for role in ROLES if f"`{role}` {unused}" in said] == [
        role for role in ROLES if role not in inputs_of(program, InputKind.MODEL)
    ]


def test_a_run_says_by_which_attention_its_models_are_run(folder, capsys):
    folder.run("grpo", "train.steps=1")

    said = capsys.readouterr().out
    assert said.count("policy: attention: sdpa (transformers), padded rows\n") == 1
    assert said.count("reference: attention: sdpa (transformers), padded rows\n") == 1


def untimed(record):
    return {name: value for name, value in record.items() if not name.startswith("seconds")}


def test_other_seeds_give_other_samples(folder):
    first = folder.run()
    other = folder.run("grpo", "train.seed=1", "train.folder=other")

    assert other[0]["tokens/sampled"] != first[0]["tokens/sampled"]


def test_tensorboard_has_the_same_numbers(folder):
    records = folder.run("grpo", "log.tensorboard=true")

    events = EventAccumulator(str(folder.path / "out" / "tensorboard")).Reload()
    losses = events.Scalars("policy/loss")
    assert [event.step for event in losses] == [1, 2, 3]
    assert_close([e.value for e in losses], [r["policy/loss"] for r in records], atol=1e-5, rtol=0)
    assert metric_names(records[0]) < set(events.Tags()["scalars"])


def test_records_are_written_as_often_as_asked_and_at_the_end(folder):
    assert [r["step"] for r in folder.run("sft", "log.every_steps=2")] == [2, 3]

    run_file(folder.write("sft"), ("log.jsonl=false", "train.folder=silent"))
    left = {path.name for path in (folder.path / "silent").iterdir()}
    assert left == {"run.toml", "plan.json", "checkpoint"}


def test_what_ran_stands_beside_its_results(folder):
    folder.run("grpo", "train.seed=3")

    out = folder.path / "out"
    assert tomllib.loads((out / "run.toml").read_text())["train"]["seed"] == 3
    plan = Plan.from_json((out / "plan.json").read_text())
    assert "update" in {node.op.name for node in plan.graph().nodes}


def test_the_policys_checkpoint_is_a_transformers_folder(folder):
    folder.run()

    checkpoint = folder.path / "out" / "checkpoint" / "policy"
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    assert (
        tokenizer("a1:")["input_ids"]
        == AutoTokenizer.from_pretrained(folder.model)("a1:")["input_ids"]
    )
    assert model(**tokenizer("a1:", return_tensors="pt")).logits.isfinite().all()
    before = AutoModelForCausalLM.from_pretrained(folder.model).state_dict()
    assert any(not torch.equal(x, before[name]) for name, x in weights(folder).items())
    assert not (folder.path / "out" / "checkpoint" / "reference").exists()


def test_the_critics_checkpoint_is_a_token_classifier(folder):
    folder.run("ppo")

    checkpoint = folder.path / "out" / "checkpoint" / "critic"
    critic = AutoModelForTokenClassification.from_pretrained(checkpoint)
    assert critic.config.num_labels == 1
    folder.run(
        "ppo",
        f"models.critic.path={checkpoint}",
        f"models.policy.path={checkpoint.parent / 'policy'}",
        "train.folder=next",
    )


@pytest.fixture
def trained(monkeypatch):
    """Return the models of the run, by role, as they are when the last checkpoint is written."""
    kept = {}

    def save(folder, step, executor, *rest):
        kept.update(executor.host.models)
        save_checkpoint(folder, step, executor, *rest)

    monkeypatch.setattr("flowrl.train.run.save_checkpoint", save)
    return kept


def test_a_trained_model_and_its_checkpoint_give_the_same_logits(folder, trained):
    folder.run("ppo")

    ids = torch.tensor([[3, 4, 5, 6]])
    for role, load in (
        ("policy", AutoModelForCausalLM),
        ("critic", AutoModelForTokenClassification),
    ):
        saved = load.from_pretrained(folder.path / "out" / "checkpoint" / role)
        assert torch.equal(saved(ids).logits, trained[role].engine.model(ids).logits)


def test_checkpoints_say_where_the_run_stood(folder):
    folder.run("ppo", "train.checkpoint_every=1")

    out = folder.path / "out"
    assert sorted(p.name for p in out.glob("checkpoint*")) == [
        "checkpoint",
        "checkpoint-1",
        "checkpoint-2",
    ]
    assert json.loads((out / "checkpoint-2" / "state.json").read_text()) == {
        "step": 2,
        "versions": {"policy": 4, "critic": 4},
        "carry": {},
        "data": {"prompts": 8},
    }
    two, three = (weights(folder, checkpoint=c) for c in ("checkpoint-2", "checkpoint"))
    assert any(not torch.equal(two[name], three[name]) for name in two)


CARRYING = """
import flowrl as fl
from flowrl import ops

@fl.program
def baseline(policy: fl.Model, prompts: fl.Prompts, mean: fl.Carry = fl.Carry(0.0)):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    mean = 0.5 * mean + 0.5 * rewards.mean()
    policy, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs * (rewards - mean), rollouts.mask), rollouts)
    return policy, mean, stats
"""


def test_carried_values_stand_in_the_checkpoint(folder):
    (folder.path / "baseline.py").write_text(CARRYING)

    records = folder.run("baseline.py", reward=SCORED)

    mean = 0.0
    for record in records:
        mean = 0.5 * mean + 0.5 * record["reward"]
    state = json.loads((folder.path / "out" / "checkpoint" / "state.json").read_text())
    assert state["carry"] == {"mean": pytest.approx(mean, abs=1e-5)}


REPLAYING = """
import flowrl as fl
from flowrl import ops

@fl.program
def replaying(policy: fl.Model, prompts: fl.Prompts, replay: fl.Carry = fl.Carry(fl.Buffer())):
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=2))
    replay = ops.append(replay, ops.record(rollouts, rewards=rewards), capacity=5)
    old = replay.rows
    policy, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs * old.rewards, old.mask), old)
    return policy, replay, stats
"""


def test_carried_rows_have_a_file_in_the_checkpoint(folder):
    (folder.path / "replaying.py").write_text(REPLAYING)

    folder.run("replaying.py", reward=SCORED)

    checkpoint = folder.path / "out" / "checkpoint"
    state = json.loads((checkpoint / "state.json").read_text())
    assert state["carry"] == {"replay": "replay.pt"}
    rows = torch.load(checkpoint / "replay.pt", weights_only=True)
    assert len(rows["replay.prompts.rows"]) == 5
    assert [len(part) for part in rows["replay.rewards"]] == [10, 5]


def test_minibatches_of_chosen_samples_need_not_divide_what_is_sampled(folder, capsys):
    models = f"{REFERENCE}\n{CRITIC}".format(model=folder.model)
    records = folder.run(
        "pf_ppo", "program.samples=3", "program.minibatch=5", models=models, reward=SCORED
    )

    assert [record["step"] for record in records] == [1, 2, 3]
    assert "12 sequences, updates of up to 5 chosen in 2 epochs" in capsys.readouterr().out


def test_a_program_without_updates_runs_too(folder):
    records = folder.run("evaluate", "program.samples=2", reward=SCORED)

    assert {"reward", "greedy"} <= metric_names(records[0])
    assert [p.name for p in (folder.path / "out" / "checkpoint").iterdir()] == ["state.json"]


def test_a_set_replaces_a_key_of_the_run_file(folder):
    records = folder.run(
        "grpo", "train.steps=1", "program.samples=2", "optimizer.learning_rate=0.5"
    )

    assert len(records) == 1
    assert records[0]["policy/learning_rate"] == 0.5


def test_ppo_and_grpo_run_with_the_same_run_file_but_for_program_and_critic(folder):
    tables = {}
    for program in ("ppo", "grpo"):
        path = folder.write(program)
        run_file(path, (f"train.folder={program}",))
        tables[program] = tomllib.loads(Path(path).read_text())

    del tables["ppo"]["program"], tables["grpo"]["program"], tables["ppo"]["models"]["critic"]
    assert tables["ppo"] == tables["grpo"]


def test_a_folder_with_results_is_left_as_it_is(folder):
    before = folder.run("sft")

    with pytest.raises(RunFileError) as error:
        run_file(folder.write("sft"), ("train.seed=1",))

    assert str(error.value).replace(str(folder.path), "FOLDER") == snapshot("""\
the run's folder has results already: checkpoint, metrics.jsonl, ops.jsonl
  FOLDER/out
help: move or remove them, or name another folder: `--set train.folder=...`; no run is continued, but one may start from a checkpoint: `models.<role>.path`\
""")
    assert folder.records() == before


def test_of_many_results_some_are_named(folder):
    for step in range(1, 8):
        (folder.path / "out" / f"checkpoint-{step}").mkdir(parents=True)

    with pytest.raises(RunFileError, match=r"checkpoint-1, .*checkpoint-5 and 2 more\n"):
        run_file(folder.write("sft"))


def test_a_checkpoint_that_is_a_link_to_nothing_is_a_result(folder):
    (folder.path / "out").mkdir()
    (folder.path / "out" / "checkpoint").symlink_to("nothing")

    with pytest.raises(RunFileError, match=r"has results already: checkpoint\n"):
        folder.run("sft")


def test_a_folder_that_cannot_be_written_is_known_before_models_load(folder, monkeypatch):
    monkeypatch.setattr("flowrl.stages.Lowered.compile", None)

    with pytest.raises(RunFileError) as error:
        folder.run("sft", "train.folder=/proc/run")

    assert str(error.value) == snapshot("""\
can't write: No such file or directory
  /proc/run
help: make room, or name another folder: `--set train.folder=...`\
""")


def test_a_failing_step_leaves_the_checkpoints_before_it(folder):
    (folder.path / "reward.py").write_text(FAILING)

    with pytest.raises(RewardError, match="raised ZeroDivisionError"):
        folder.run("grpo", "train.checkpoint_every=1", "data.shuffle=false")

    out = folder.path / "out"
    assert [record["step"] for record in folder.records()] == [1]
    assert [path.name for path in out.glob("checkpoint*")] == ["checkpoint-1"]
    assert weights(folder, checkpoint="checkpoint-1")


FAILING = """
def vowels(prompts, completions):
    return [1 / (prompt[0] != "e") for prompt in prompts]
"""


def test_a_full_disk_is_an_error_that_leaves_no_part_of_a_checkpoint(folder, monkeypatch):
    write = Path.write_text

    def full(self, *given, **named):
        if self.name == "state.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, *given, **named)

    path = folder.write("sft")
    monkeypatch.setattr(Path, "write_text", full)

    with pytest.raises(RunFileError, match="can't write: No space left on device"):
        run_file(path)

    left = {path.name for path in (folder.path / "out").iterdir()}
    assert left == {"metrics.jsonl", "ops.jsonl", "run.toml", "plan.json"}
