"""How wide numbers are in a run, as plans take them to be."""

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.placement.target import target_of
from flowrl.config.traced import trace_run
from flowrl.ops.uses import uses_of
from flowrl.runtime.engines.torch_scorer import TorchScorer
from flowrl.runtime.model.models import ModelSpec
from tests.config.conftest import GRPO

QWEN = GRPO.replace('path = "model"', 'path = "Qwen/Qwen2.5-7B"\ndtype = "{dtype}"')
LORA = "[models.policy.lora]\nrank = 4\n"


def weight_bytes(load, machines, dtype="bfloat16", added=""):
    sets = f'cluster.machines="{machines}"'
    run = load(added, sets, text=QWEN.replace("{dtype}", dtype))
    graph = simplify(trace_run(run).graph, Cluster())
    target = target_of(run, graph)
    return {role: target.workload.settings(role).weight_bytes for role in uses_of(graph)}


@pytest.mark.parametrize(
    ("machines", "dtype", "added", "found"),
    [
        ("1xH200", "bfloat16", "", (2, 2)),  # the trainer may compute with the engine's weights
        ("8xH100", "bfloat16", "", (2, 4)),
        ("1xH200", "bfloat16", LORA, (2, 4)),
        ("1xH200", "float32", "", (4, 4)),
        ("8xH100", "float64", "", (8, 8)),
    ],
)
def test_a_frozen_model_is_as_wide_as_what_is_compared_with_it(load, machines, dtype, added, found):
    assert weight_bytes(load, machines, dtype, added) == dict(
        zip(("policy", "reference"), found, strict=True)
    )


@pytest.mark.parametrize(("narrow", "found"), [(False, 4), (True, 2)])
def test_a_scorer_has_such_weights(tmp_path, narrow, found):
    sizes = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes, num_attention_heads=1)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)

    scorer = TorchScorer(ModelSpec(str(tmp_path), dtype="bfloat16", narrow=narrow))

    assert {parameter.element_size() for parameter in scorer.model.parameters()} == {found}
