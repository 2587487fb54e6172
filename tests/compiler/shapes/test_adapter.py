"""The planner's adapter of each family is the one that is made."""

import pytest
import torch
from inline_snapshot import snapshot
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

from flowrl.compiler.shapes import AdapterShape, ModelShape, known_shape
from flowrl.compiler.shapes.families import FAMILIES
from flowrl.errors import EngineError
from flowrl.runtime.model.lora import Lora, add_adapter, trained_names
from tests.compiler.shapes.test_families import config_of, on_meta

DENSE = [name for name in FAMILIES if not ModelShape.from_config(config_of(name).to_dict()).experts]


def trained(model, lora):
    with torch.device("meta"):
        add_adapter(model, lora)
    own = trained_names(model)
    return {n: tuple(p.shape) for n, p in model.named_parameters() if n in own}


def planned(config, head, *adapter):
    shape = AdapterShape.beside(ModelShape.from_config(config.to_dict(), head), *adapter)
    return {p.name: p.shape for p in shape.parameters()}


@pytest.mark.parametrize("family", DENSE)
def test_adapters_are_those_of_the_runtime(family):
    config = config_of(family)

    real = trained(on_meta(AutoModelForCausalLM, config), Lora(rank=4))

    assert planned(config, "lm", 4) == real


def test_adapters_of_some_layers_are_those_of_the_runtime():
    config, targets = config_of("llama"), ("q_proj", "mlp.down_proj")

    real = trained(on_meta(AutoModelForCausalLM, config), Lora(rank=4, targets=targets))

    assert planned(config, "lm", 4, targets) == real


def test_a_head_of_one_number_is_trained_itself():
    config = config_of("llama")
    config.num_labels = 1

    real = trained(on_meta(AutoModelForTokenClassification, config), Lora(rank=4))

    assert planned(config, "value", 4) == real
    assert real["score.weight"] == (1, 64)


def test_an_adapter_of_rank_16_trains_half_a_percent_of_a_7b_model():
    shape = known_shape("qwen2.5-7b")

    adapter = AdapterShape.beside(shape, 16)

    assert adapter.count == 40_370_176
    assert adapter.body_flops == 2 * adapter.count
    assert hash(adapter) != hash(shape)
    assert shape.count == 7_615_616_512


@pytest.mark.parametrize(
    ("model", "targets", "told"),
    [
        (
            "qwen2.5-7b",
            ("q_porj",),
            snapshot("""\
a qwen2 has no linear layers `q_porj` for adapters (did you mean `q_proj`?)
help: there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; targets = "all-linear" takes all but heads\
"""),
        ),
        (
            "mixtral-8x7b",
            "all-linear",
            snapshot("""\
the planner knows no adapters of experts, which a mixtral has
help: take a dense model, or train the whole model\
"""),
        ),
    ],
)
def test_what_has_no_such_adapter_is_refused(model, targets, told):
    with pytest.raises(EngineError) as refused:
        AdapterShape.beside(known_shape(model), 16, targets)

    assert str(refused.value) == told
