"""Which of an engine's tensors are parameters of a transformers model, and which are refused."""

import pytest
import torch
from inline_snapshot import snapshot
from torch import nn

from flowrl.errors import EngineError
from flowrl.runtime.engines.vllm.weights import own_tensors


def holding(**tensors):
    """Return a module with weights as vLLM has them; `__` is a dot in their names."""
    root = nn.Module()
    root.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    for name, tensor in tensors.items():
        *above, last = name.split("__")
        at = root
        for part in above:
            if not hasattr(at, part):
                at.add_module(part, nn.Module())
            at = getattr(at, part)
        at.register_parameter(last, nn.Parameter(tensor))
    return root


def test_rows_of_joined_and_padded_tensors_are_lent_as_views():
    model = holding(qkv_proj__weight=torch.rand(8, 4), embed__weight=torch.rand(64, 4))
    shapes = {"q_proj.weight": (4, 4), "k_proj.weight": (2, 4), "v_proj.weight": (2, 4)}
    shapes["embed.weight"] = (63, 4)

    lent = own_tensors(model, shapes, torch.float32)

    joined, padded = model.qkv_proj.weight, model.embed.weight
    assert lent["k_proj.weight"].data_ptr() == joined[4:].data_ptr()
    assert lent["embed.weight"].data_ptr() == padded.data_ptr()
    assert {name: tuple(view.shape) for name, view in lent.items()} == shapes


def test_weights_of_which_vllm_has_made_others_are_refused():
    model = holding(kv_b_proj__weight=torch.rand(8, 4), attn__W_UV=torch.rand(2, 4, 2))

    with pytest.raises(EngineError) as error:
        own_tensors(model, {"kv_b_proj.weight": (8, 4)}, torch.float32)

    assert str(error.value) == snapshot(
        "vLLM has made `attn.W_UV` of the model's weights, and computes with it"
    )


def test_tensors_in_another_form_are_refused():
    found = []
    for name, own in (
        ("c_attn.weight", holding(c_attn__weight=torch.rand(12, 4))),
        ("experts.gate_up_proj", holding(experts__w13_weight=torch.rand(12, 4))),
        (
            "attention.query_key_value.weight",
            holding(attention__query_key_value__weight=torch.rand(4, 12)),
        ),
    ):
        with pytest.raises(EngineError) as error:
            own_tensors(own, {name: (4, 12)}, torch.float32)
        found.append(str(error.value))

    assert found == snapshot(
        [
            "vLLM has `c_attn.weight`, torch.float32 [4, 12], as torch.float32 [4, 4]",
            "vLLM has `experts.gate_up_proj`, torch.float32 [4, 12], as none",
            "vLLM has the rows of `attention.query_key_value.weight` in another order",
        ]
    )
