"""What a rank has of a divided model is what the planner says, and what can't be divided is told.

The ranks of these tests are one process each, without others: dividing takes no messages.
"""

import contextlib

import pytest
import torch
import torch.distributed as dist
import transformers
from inline_snapshot import snapshot
from torch.testing._internal.distributed.fake_pg import FakeStore

from flowrl.compiler.layouts import Sharding
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.shapes.families import FAMILIES as PLANNED
from flowrl.errors import EngineError
from flowrl.ir.layout import Layout
from flowrl.runtime.engines.hf import HFGenerator
from flowrl.runtime.model.fsdp2 import chunk
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.model.tensor_parallel import divide
from flowrl.runtime.model.weights import weights_of
from flowrl.runtime.ranks.ranks import Ranks
from tests.ranked import leave
from tests.runtime.families import FAMILIES, KEYS, model_of, save

pytestmark = pytest.mark.processes


@contextlib.contextmanager
def rank_of(index, count):
    """One rank of a group that has no others."""
    dist.init_process_group("fake", store=FakeStore(), rank=index, world_size=count)
    try:
        yield Ranks(index, count)
    finally:
        leave()


def planned(config, index, count, whole):
    """Return the tensors that the planner lays on a rank, filled from whole weights."""
    shape = ModelShape.from_config(config.to_dict())
    made = {}
    for shard in Sharding(Layout(tp=count), range(count)).tensors(index, shape):
        made[shard.tensor] = torch.full(shard.shape, torch.nan)
        for piece in shard.pieces:
            part = whole[piece.parameter][tuple(slice(*span) for span in piece.box)]
            made[shard.tensor][tuple(slice(*span) for span in piece.stored)] = part
    return made


@pytest.mark.parametrize("family", [name for name in FAMILIES if name in PLANNED])
@pytest.mark.parametrize("count", [2, 4])
def test_a_rank_has_the_tensors_that_the_planner_says(family, count):
    config = FAMILIES[family]()
    whole = {name: tensor.clone() for name, tensor in weights_of(model_of(config)).items()}

    for index in range(count):
        model = model_of(config)
        with rank_of(index, count) as ranks:
            divide(model, ranks, "cpu")
            found = {name: chunk(tensor) for name, tensor in weights_of(model).items()}

        expected = planned(config, index, count, whole)
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            assert torch.equal(tensor, expected[name]), name
            assert tensor.untyped_storage().nbytes() == tensor.nbytes, "nothing else is kept"


def test_weights_of_another_model_are_told_by_the_shapes_of_whole_ones(tmp_path, tokenizer):
    folder, name = save(FAMILIES["qwen2"](), tmp_path), "model.layers.0.self_attn.k_proj.weight"
    weights = HFGenerator(ModelSpec(folder), tokenizer).stored()
    with rank_of(1, 4) as ranks:
        generator = HFGenerator(ModelSpec(folder), tokenizer, ranks)

        with pytest.raises(EngineError) as error:
            generator.load(weights | {name: weights[name][:8]}, version=1)
        generator.load(weights, version=2)

    assert str(error.value) == snapshot("""\
`model.layers.0.self_attn.k_proj.weight` must be of shape [16, 32]; got [8, 32]
help: load weights of the same model\
""")
    assert generator.version == 2
    assert torch.equal(generator.stored()[name], weights[name][:8])


def refusal(config, count):
    model = model_of(config)
    with rank_of(0, count) as ranks, pytest.raises(EngineError) as error:
        divide(model, ranks, "cpu")
    return str(error.value)


def test_a_model_that_transformers_does_not_divide_is_refused():
    config = transformers.BloomConfig(vocab_size=63, hidden_size=16, n_layer=1, n_head=2)

    assert refusal(config, 2) == snapshot("""\
transformers declares no `base_model_tp_plan` for models of type `bloom`, by which several ranks could divide this one
help: sample with whole weights: a layout `dpN` of the generator\
""")


def test_a_model_that_is_not_divided_by_columns_and_rows_alone_is_refused():
    assert refusal(transformers.Olmo2Config(**KEYS), 2) == snapshot("""\
ranks divide linear layers by `colwise` and `rowwise`; in models of type `olmo2` transformers declares `model.layers.0.self_attn.q_proj` as `colwise_gather_output`
help: sample with whole weights: a layout `dpN` of the generator\
""")


def test_heads_and_columns_that_do_not_divide_evenly_are_named():
    assert refusal(transformers.LlamaConfig(**KEYS), 3) == snapshot("""\
the model doesn't fit: `tp` 3 doesn't divide the 4 heads of `model.layers.0.self_attn.q_proj.weight`
help: divide by fewer, and fill the pool with `dp`\
""")
    assert refusal(transformers.LlamaConfig(**KEYS | {"intermediate_size": 21}), 2) == snapshot("""\
the model doesn't fit: `tp` 2 doesn't divide the 21 of `model.layers.0.mlp.gate_proj.weight`
help: divide by fewer, and fill the pool with `dp`\
""")
    three = {"num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 48}
    assert refusal(transformers.LlamaConfig(**KEYS | three), 4) == snapshot("""\
the model doesn't fit: `tp` 4 doesn't divide the 3 heads of `model.layers.0.self_attn.k_proj.weight`
help: divide by fewer, and fill the pool with `dp`\
""")
