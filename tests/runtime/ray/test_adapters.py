"""Adapters on Ray: trained by several ranks, and sent alone."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from flowrl.runtime.model.lora import Lora
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Fsdp2
from tests.runtime.ray.conftest import HELD_OUT, POOLS, RANKS, known
from tests.runtime.ray.ranked import Run, assert_same, trained

LORA = """
[models.policy.lora]
rank = 1
targets = ["q_proj"]
"""
TOGETHER = RANKS.partition("[cluster.pools.rollout]")[0] + 'roles = ["policy", "reference"]'


@pytest.mark.parametrize("fsdp", [Fsdp2(), Fsdp2(offload=True), None])
@pytest.mark.parametrize("head", [None, "lm+value"])
def test_ranks_train_and_save_an_adapter_as_one_does(fsdp, head, on, model_folder, batch, tmp_path):
    spec = ModelSpec(model_folder("llama"), head, "float64", lora=Lora(rank=4))
    folders = [str(tmp_path / name) for name in ("there", "here")]

    found = on(2, Run({"folder": folders[0]}), spec, batch, fsdp)

    expected = trained(spec, batch, folder=folders[1])
    assert_same(found, expected)
    for file in ("model.safetensors", "adapter/adapter_model.safetensors"):
        there, here = (load_file(f"{folder}/{file}") for folder in folders)
        assert_close(there, here, rtol=0, atol=1e-10)


def test_a_base_in_bfloat16_is_divided_beside_adapters_in_float32(on, model_folder, batch):
    spec = ModelSpec(model_folder("llama"), dtype="bfloat16", lora=Lora(rank=4))

    found = on(2, Run({"name": "batch statistic"}), spec, batch, Fsdp2())

    expected = trained(spec, batch, name="batch statistic")
    assert_same(found, expected, tolerance=0.02)
    assert {x.dtype for x in found[0]["weights"].values()} == {torch.float32}
    assert max(each["kept"] for each in found) < 0.6 * found[0]["whole"]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("cluster", [POOLS, RANKS, TOGETHER])
def test_a_run_sends_adapters_alone_and_is_that_of_one_process(cluster, heldout):
    doubles = ("models.policy.dtype=float64", "models.reference.dtype=float64")
    added = f"{LORA}{cluster}{HELD_OUT}"
    there = heldout.run("grpo", *doubles, added=added)
    lines = (heldout.path / "out" / "ops.jsonl").read_text().splitlines()

    here = heldout.run("grpo", *doubles, "train.folder=here", "cluster.executor=local", added=added)

    for record, expected in zip(there, here, strict=True):
        assert known(record) == pytest.approx(known(expected), rel=1e-10, abs=1e-10)
    saved = [heldout.path / folder / "checkpoint" / "policy" for folder in ("out", "here")]
    merged = [load_file(folder / "model.safetensors") for folder in saved]
    assert_close(*merged, rtol=0, atol=1e-10)
    adapter = load_file(saved[0] / "adapter" / "adapter_model.safetensors")
    size = sum(x.nbytes for x in adapter.values())
    models = [op for op in map(json.loads, lines) if op["kind"] == "transfer" and op["role"]]
    workers = 2 if cluster is POOLS else 1
    assert [op["bytes"] for op in models] == ([workers * size] * 3 if cluster != TOGETHER else [])
    assert size < 0.05 * sum(x.nbytes for x in merged[0].values())
