"""What an adapter adds to a layer, against kernels and tensors of a real one."""

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from flowrl.compiler.cost.activations import AdapterWidths
from flowrl.compiler.cost.forward import ADAPTER, ADAPTER_BACKWARD, BACKWARD
from flowrl.compiler.shapes import AdapterShape, ModelShape, known_shape
from flowrl.runtime.model.lora import Lora, add_adapter, trained_names
from flowrl.runtime.model.narrow import widen

RANK, TOKENS = 4, 50
VIEWS = {"view", "_unsafe_view", "t", "transpose", "expand", "unsqueeze", "slice", "detach"}
CONFIG = {
    **{"vocab_size": 96, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 16},
}


class Kernels(TorchDispatchMode):
    """Counts what is called, but for views."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func._schema.name.removeprefix("aten::") not in VIEWS
        return func(*args, **(kwargs or {}))


def model(layers, adapts):
    config = transformers.LlamaConfig(**CONFIG, num_hidden_layers=layers)
    made = transformers.LlamaForCausalLM(config)
    if adapts:
        made.to(torch.bfloat16).requires_grad_(False)
        add_adapter(made, Lora(rank=RANK))
        widen(made)
        own = trained_names(made)
        for name, parameter in made.named_parameters():
            parameter.requires_grad_(name in own)
    return made


def states(made):
    with torch.autocast("cpu", torch.bfloat16):
        return made.model(torch.arange(TOKENS)[None], use_cache=False).last_hidden_state


def of_a_layer(measure, adapts):
    one, three = (measure(model(layers, adapts)) for layers in (1, 3))
    return (three - one) / 2


def forth(made):
    with Kernels() as kernels:
        states(made)
    return kernels.count


def back(made):
    last = states(made)
    with Kernels() as kernels:
        last.sum().backward()
    return kernels.count


def kept(made):
    """Bytes of what has tokens and waits for the backward pass."""
    weights = {p.untyped_storage().data_ptr() for p in made.parameters()}
    found = {}

    def pack(x):
        if TOKENS in x.shape and x.untyped_storage().data_ptr() not in weights:
            found[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        states(made)
    return sum(x.untyped_storage().nbytes() for x in found.values())


def test_kernels_that_adapters_launch_beside_a_layers_own():
    whole = of_a_layer(forth, False), of_a_layer(back, False)
    adapted = of_a_layer(forth, True), of_a_layer(back, True)

    more = [b / a - 1 for a, b in zip(whole, adapted, strict=True)]
    assert more[0] == pytest.approx(7 * ADAPTER, rel=0.2)  # seven linear layers
    assert more[1] * BACKWARD == pytest.approx(7 * ADAPTER_BACKWARD, rel=0.2)


def test_no_more_waits_for_the_backward_pass_than_what_a_gives():
    shape = ModelShape.from_config({"model_type": "llama", "num_hidden_layers": 1, **CONFIG})
    beside = AdapterWidths.of(AdapterShape.beside(shape, RANK))

    whole, adapted = of_a_layer(kept, False), of_a_layer(kept, True)

    assert beside.stored == 7 * 2 * RANK
    assert adapted - whole <= TOKENS * beside.stored


def test_counts_by_hand():
    beside = AdapterWidths.of(
        AdapterShape.beside(known_shape("qwen2.5-7b"), 16, ("q_proj", "down_proj"))
    )

    assert beside == AdapterWidths(count=2, rank=16, inputs=3584 + 18944, outputs=2 * 3584)
    assert beside.travelled(compiled=False) == 2 * 22528 + 4 * 32 + 12 * 7168
    assert beside.travelled(compiled=True) == 2 * 22528 + 4 * 32 + 8 * 7168
    assert beside.returned == 10 * 22528 + 8 * 7168
    assert AdapterWidths.of(None) == AdapterWidths()
