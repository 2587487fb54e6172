"""Weights that workers of Ray sample with are compared with those that train, wherever both are."""

from importlib.util import find_spec

import pytest
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from tests.runtime.ray import faults
from tests.runtime.ray.conftest import POOLS, RANKS, REPLICAS
from tests.train.conftest import Folder, make_tokenizer
from tests.train.test_cases import FAST

here = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")

ALONE = """
[cluster]
executor = "ray"
[cluster.pools.all]
cpus = 0.25
roles = ["policy"]
"""
COPIED = ALONE + 'residencies = { "policy.generate" = "resident" }\n'
LAID_OUT = RANKS + 'workers = 2\nlayouts = { "policy.generate" = "dp2" }\n'
LORA = """
[models.policy.lora]
rank = 4
"""
ALWAYS = "cluster.check_weights_every=1"
VLLM = ('engines.policy.generate.engine="vllm"', "engines.policy.generate.vllm.kv_cache_gib=0.1")


@pytest.fixture(scope="module")
def wide(make_model):
    """Return the folder of a model whose heads are wide enough for vLLM, its head tied."""
    return make_model(make_tokenizer(), hidden_size=64, tie_word_embeddings=True)


def stopped(folder, *sets, added):
    """Return the first line of the error that stops a run, and the steps that it logged."""
    with pytest.raises(EngineError) as error:
        folder.run("grpo", FAST, ALWAYS, *sets, added=added)
    return str(error.value).splitlines()[0], [record["step"] for record in folder.records()]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("added", [ALONE, COPIED], ids=["shared", "copied"])
def test_one_worker_compares_what_one_process_does(folder, added):
    every = "cluster.check_weights_every=2"
    there = folder.run("grpo", every, added=added)
    here = folder.run("grpo", every, "train.folder=here", "cluster.executor=local", added=added)

    found, expected = [
        [{n: x for n, x in record.items() if not n.startswith("seconds")} for record in records]
        for records in (there, here)
    ]
    assert found == expected
    figures = [(r.get("policy/weights_compared"), r.get("policy/weights_shared")) for r in there]
    assert figures == [(21, 21 * (added == ALONE)), (None, None), (21, 21 * (added == ALONE))]


@pytest.mark.parametrize("added", [COPIED, POOLS], ids=["one worker", "several workers"])
def test_an_altered_weight_on_a_worker_stops_the_run_and_is_named(folder, faulty, added):
    faulty(faults.altered)

    assert stopped(folder, added=added) == snapshot(
        (
            "generate: `policy` is not sampled from with the weights that train: `model.norm.weight` differs in 1 of 16 elements",
            [1],
        )
    )


@here
@pytest.mark.parametrize("added", [COPIED, POOLS], ids=["one worker", "several workers"])
def test_an_altered_weight_of_a_workers_vllm_stops_the_run(tmp_path, wide, faulty, added):
    faulty(faults.altered_in_vllm)

    assert stopped(Folder(tmp_path, wide), *VLLM, added=added) == snapshot(
        (
            "generate: `policy` is not sampled from with the weights that train: `model.norm.weight` differs in 1 of 64 elements",
            [1],
        )
    )


@here
@pytest.mark.parametrize("added", [LAID_OUT, REPLICAS], ids=["to replicas", "from replicas"])
def test_a_weight_that_changes_from_a_reshard_to_vllm_stops_the_run(tmp_path, wide, faulty, added):
    faulty(faults.altered_on_the_way)

    assert stopped(Folder(tmp_path, wide), *VLLM, added=added) == snapshot(
        (
            "reshard: `policy` is not sampled from with the weights that train: `model.norm.weight` differs in 1 of 64 elements",
            [1],
        )
    )


@here
def test_a_cache_that_outlives_its_weights_in_a_workers_vllm_stops_the_run(tmp_path, wide, faulty):
    faulty(faults.stale_cache)

    assert stopped(Folder(tmp_path, wide), *VLLM, added=COPIED) == snapshot(
        (
            "generate: the generator of `policy` got other weights, but its cache still has version 0: what it cached under the old ones can be hit",
            [1],
        )
    )


@here
@pytest.mark.parametrize("added", [COPIED, POOLS], ids=["one worker", "several workers"])
def test_a_stale_adapter_in_a_workers_vllm_stops_the_run(tmp_path, wide, faulty, added):
    faulty(faults.stale_adapter)

    assert stopped(Folder(tmp_path, wide), *VLLM, added=LORA + added) == snapshot(
        (
            "generate: `policy` is not sampled from with the weights that train: `model.layers.0.self_attn.q_proj.lora_B.default.weight` differs in 256 of 256 elements, as do 13 more",
            [1],
        )
    )


@here
def test_an_adapter_that_a_workers_vllm_is_not_asked_for_stops_the_run(tmp_path, wide, faulty):
    faulty(faults.unasked_adapter)

    text, steps = stopped(Folder(tmp_path, wide), *VLLM, added=LORA + COPIED)

    assert text.replace(str(wide), "MODEL") == snapshot(
        "generate: vLLM was not asked for `adapter 1` on `MODEL`: it has sampled from the base"
    )
    assert steps == []
