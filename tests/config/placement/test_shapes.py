"""What is known of a model before it is loaded."""

import json

import pytest

from flowrl.compiler.shapes import known_shape
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.shapes import shape_of
from flowrl.config.placement.weights import How, syncs
from flowrl.config.planned import plan_run
from tests.config.conftest import QWEN, pools_of

NAME = "Qwen/Qwen2.5-3B"
DIVIDED = """
[engines.policy.train]
shard = "fsdp2"
[cluster]
executor = "ray"
machines = "8xH100"
[cluster.pools.main]
gpus = 8
workers = 8
roles = ["policy", "reference"]
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the hub in which nothing is."""
    folder = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


def test_a_name_on_the_hub_has_the_sizes_that_the_planner_knows(load, cache):
    run = load(text=QWEN)

    assert shape_of(run, "policy") == known_shape(NAME)


def test_what_is_in_the_cache_counts_more_than_the_name(load, cache):
    of_name = cache / f"models--{NAME.replace('/', '--')}"
    snapshot = of_name / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (of_name / "refs").mkdir()
    (of_name / "refs" / "main").write_text("abc")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
    (snapshot / "config.json").write_text(json.dumps({"model_type": "qwen2"} | sizes | heads))

    found = shape_of(load(text=QWEN), "policy")

    assert (found.layers, found.dimensions.vocab) == (2, 100)


@pytest.mark.parametrize("path", ["org/unheard-of", "./nowhere", "/nowhere/at/all", "nowhere"])
def test_of_what_is_nowhere_nothing_is_known(load, cache, path):
    assert shape_of(load("", f"models.policy.path={path}", text=QWEN), "policy") is None


def test_weights_of_a_model_on_the_hub_move_as_they_are_planned(load, cache):
    run = load(DIVIDED, text=QWEN)

    traced, plan = plan_run(run)
    graph = traced.lower(pools_of(run)).graph

    assert syncs(run, Placed.by_run_file(run, graph))["policy"].how is How.RESHARD
    assert syncs(run, Placed.by_plan(plan))["policy"].how is How.RESHARD
