"""Runs that train an adapter."""

import json
import sys

import pytest
import torch
from inline_snapshot import snapshot
from safetensors.torch import load_file

from flowrl.report.check import checked
from flowrl.train.evaluate import eval_checkpoint
from tests.train.conftest import ROWS, SCORED

LORA = """
[models.policy.lora]
rank = 2
alpha = 16
"""
EVAL = """
[eval]
samples = 3
[eval.data]
source = "heldout.jsonl"
"""


@pytest.fixture
def heldout(folder):
    folder.write_rows("heldout.jsonl", [row | {"prompt": row["prompt"] + ":"} for row in ROWS[:5]])
    return folder


@pytest.mark.parametrize("program", ["grpo", "dpo"])
def test_a_run_loads_one_model_and_leaves_one_that_evaluates_as_it_did(
    program, heldout, monkeypatch
):
    records = heldout.run(
        program,
        "models.policy.dtype=float64",
        "models.reference.dtype=float64",
        added=LORA + EVAL,
        reward=SCORED,
    )
    monkeypatch.setitem(sys.modules, "peft", None)  # what is merged needs none

    metrics = eval_checkpoint(
        str(heldout.path / "run.toml"), str(heldout.path / "out" / "checkpoint"), say=lambda _: None
    )

    first, last = (line for line in records if "eval/reward" in line)
    assert {"step": 3, **{n: float(f"{x:.6g}") for n, x in metrics.items()}}.items() <= last.items()
    assert first["eval/reward"] != last["eval/reward"]
    saved = heldout.path / "out" / "checkpoint" / "policy"
    files = {file.name for file in (saved / "adapter").iterdir()}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}
    lines = (heldout.path / "out" / "ops.jsonl").read_text().splitlines()
    roles = [op["role"] for op in map(json.loads, lines) if op["kind"] == "base"]
    assert roles == ["policy"] * 3


def test_the_next_run_starts_from_the_merged_model(heldout):
    heldout.run(added=LORA)
    saved = heldout.path / "out" / "checkpoint" / "policy"
    merged = load_file(saved / "model.safetensors")

    heldout.run("grpo", "train.folder=next", f"models.policy.path={saved}", "train.steps=1")

    assert not torch.equal(
        merged["lm_head.weight"],
        load_file(heldout.path / "next" / "checkpoint" / "policy" / "model.safetensors")[
            "lm_head.weight"
        ],
    )
    base = load_file(heldout.model / "model.safetensors")
    assert torch.equal(merged["model.embed_tokens.weight"], base["model.embed_tokens.weight"])
    assert not torch.equal(
        merged["model.layers.0.mlp.up_proj.weight"], base["model.layers.0.mlp.up_proj.weight"]
    )


def test_check_says_what_is_not_loaded(folder):
    found = checked(folder.write(added=LORA), ()).splitlines()

    assert [line for line in found if "adapter" in line] == snapshot(
        [
            "`policy`: weights are copied into its generator: only its adapter trains and is sent",
            "`reference` is the base under the adapter of `policy`: it is not loaded again.",
        ]
    )


def test_a_run_says_of_a_base_what_check_says(folder, capsys):
    shard = "engines.reference.train.shard=fsdp2"
    said = checked(folder.write(added=LORA), (shard,)).splitlines()

    folder.run("grpo", "train.steps=1", shard, added=LORA)

    (told,) = [line for line in said if "shard" in line]
    assert told in capsys.readouterr().out.splitlines()


def test_a_run_on_machines_is_predicted_op_by_op(folder):
    folder.run("grpo", "cluster.machines=1xCPU", "train.steps=1", added=LORA)

    plan = json.loads((folder.path / "out" / "plan.json").read_text())
    predicted = [(task["kind"], task["seat"]) for task in plan["forecast"]["tasks"]]
    assert predicted == [
        ("base", "policy.train"),
        ("generate", "policy.generate"),
        ("logprobs", "policy.score"),
        ("update", "policy.train"),
    ]
