"""Runs that train an adapter."""

import json

import pytest
import torch
from inline_snapshot import snapshot
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from flowrl.report.check import checked
from flowrl.train.evaluate import eval_checkpoint
from tests.train.conftest import PROGRAMS, ROWS

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


def test_a_run_loads_one_model_and_leaves_one_that_evaluates_as_it_did(heldout):
    records = heldout.run(added=LORA + EVAL, models=f'dtype = "float64"\n{reference(heldout)}')

    metrics = eval_checkpoint(
        str(heldout.path / "run.toml"), str(heldout.path / "out" / "checkpoint"), say=lambda _: None
    )

    first, last = (line for line in records if "eval/reward" in line)
    assert {"step": 3, **{n: float(f"{x:.6g}") for n, x in metrics.items()}}.items() <= last.items()
    assert first["eval/reward"] != last["eval/reward"]
    saved = heldout.path / "out" / "checkpoint" / "policy"
    assert sorted(file.name for file in (saved / "adapter").iterdir()) == snapshot(
        ["adapter_config.json", "adapter_model.safetensors"]
    )
    assert AutoModelForCausalLM.from_pretrained(saved).config.dtype == torch.float64
    ops = (
        json.loads(line) for line in (heldout.path / "out" / "ops.jsonl").read_text().splitlines()
    )
    assert [op["role"] for op in ops if op["kind"] == "base"] == snapshot(
        ["policy", "policy", "policy"]
    )


def reference(heldout):
    return PROGRAMS["grpo"]["models"].format(model=heldout.model) + '\ndtype = "float64"'


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
            "`policy`: weights are copied to sample with: an adapter trains, and it alone is sent",
            "`reference` is the base under the adapter of `policy`: it is not loaded again.",
        ]
    )
