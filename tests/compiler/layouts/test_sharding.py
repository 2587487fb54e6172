"""What each rank stores: by hand, and as laws over many models and layouts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.layouts import Sharding, Storage, bundles
from flowrl.compiler.layouts.sharding import stages
from flowrl.compiler.shapes.known import known_shape
from flowrl.errors import RunFileError
from flowrl.ir.layout import Layout
from tests.compiler.layouts.models import models, placed, shardings, small

QWEN = known_shape("qwen2.5-7b")  # 28 query heads, 4 of keys and values, of 128; 3,584 wide


def stored(shape, sharding, parameter, rank):
    """The box, the offset and the stored shape of each piece of a parameter on a rank."""
    return [
        (piece.box, piece.offset, shard.shape)
        for shard in sharding.tensors(rank, shape)
        for piece in shard.pieces
        if piece.parameter == parameter
    ]


def rows(shape, sharding, parameter):
    """The rows of a parameter that each rank holds, if it holds them in one piece."""
    return [
        [box[0] for box, _, _ in stored(shape, sharding, parameter, rank)]
        for rank in sharding.ranks
    ]


@st.composite
def cases(draw):
    shape = draw(models)
    return shape, draw(shardings(shape))


@given(cases())
def test_a_model_lies_whole_over_the_ranks_and_no_rank_holds_an_element_twice(case):
    shape, sharding = case
    held = {p.name: np.zeros(p.shape, bool) for p in shape.parameters()}

    for rank in sharding.ranks:
        mine = {p.name: np.zeros(p.shape, np.int8) for p in shape.parameters()}
        for shard in sharding.tensors(rank, shape):
            for piece in shard.pieces:
                mine[piece.parameter][tuple(slice(*span) for span in piece.box)] += 1
        for name, count in mine.items():
            assert count.max() <= 1
            held[name] |= count > 0

    assert all(found.all() for found in held.values())


@given(cases())
def test_pieces_lie_side_by_side_in_tensors_and_only_the_vocabulary_is_padded(case):
    shape, sharding = case
    for rank in sharding.ranks:
        for shard in sharding.tensors(rank, shape):
            filled = np.zeros(shard.shape, np.int8)
            for piece in shard.pieces:
                filled[tuple(slice(*span) for span in piece.stored)] += 1
            assert filled.max(initial=0) <= 1
            padded = sharding.storage is Storage.ENGINE and shard.tensor.endswith(
                ("embed_tokens.weight", "embed_in.weight", "wte.weight", "lm_head.weight")
            )
            assert filled.all() or padded


@given(cases())
def test_what_a_rank_stores_is_the_same_bundle_by_bundle(case):
    shape, sharding = case
    by_bundle = dict.fromkeys(sharding.ranks, ())
    for bundle in bundles(shape):
        for rank, shards in sharding.shards(bundle, shape).items():
            by_bundle[rank] += shards

    assert by_bundle == {rank: sharding.tensors(rank, shape) for rank in sharding.ranks}


@given(st.integers(1, 40), st.integers(1, 12))
def test_fsdp_cuts_the_first_dim_as_torch_chunk_does(size, ranks):
    shape = small("llama", vocab_size=size)
    chunks = torch.arange(size).chunk(ranks)
    expected = [[(int(c[0]), int(c[-1]) + 1)] for c in chunks] + [[]] * (ranks - len(chunks))

    assert rows(shape, placed(f"fsdp{ranks}"), "lm_head.weight") == expected


def test_queries_are_divided_by_heads_and_ranks_share_keys_when_they_are_more():
    queries = rows(QWEN, placed("tp2"), "model.layers.0.self_attn.q_proj.weight")
    keys = rows(
        small("llama"), placed("tp4"), "model.layers.0.self_attn.k_proj.weight"
    )  # 2 heads of 3

    assert queries == [[(0, 1792)], [(1792, 3584)]]
    assert keys == [[(0, 3)], [(0, 3)], [(3, 6)], [(3, 6)]]


def test_an_engine_stores_query_key_and_value_as_one_tensor():
    layer = "model.layers.3.self_attn"
    sharding = placed("tp4", storage=Storage.ENGINE)

    (query,) = stored(QWEN, sharding, f"{layer}.q_proj.weight", 1)
    (key,) = stored(QWEN, sharding, f"{layer}.k_proj.weight", 1)
    (value,) = stored(QWEN, sharding, f"{layer}.v_proj.bias", 1)

    assert query == (((896, 1792), (0, 3584)), (0, 0), (1152, 3584))
    assert key == (((128, 256), (0, 3584)), (896, 0), (1152, 3584))
    assert value == (((128, 256),), (1024,), (1152,))
    names = {shard.tensor for shard in sharding.tensors(0, QWEN)}
    assert {f"{layer}.qkv_proj.weight", f"{layer}.qkv_proj.bias"} <= names
    assert "model.layers.3.mlp.gate_up_proj.weight" in names


def test_gate_and_up_that_a_model_joins_itself_are_each_divided():
    """2 * 20 rows: a rank has rows of the gate and, behind them, the same rows of up."""
    sharding = placed("tp2")

    found = stored(small("phi3"), sharding, "model.layers.0.mlp.gate_up_proj.weight", 1)

    assert found == [
        (((10, 20), (0, 12)), (0, 0), (20, 12)),
        (((30, 40), (0, 12)), (10, 0), (20, 12)),
    ]


def test_row_parallel_matrices_are_divided_along_their_inputs_and_their_biases_are_not():
    shape = small("llama")
    (matrix,) = stored(shape, placed("tp4"), "model.layers.0.mlp.down_proj.weight", 2)
    (bias,) = stored(shape, placed("tp4"), "model.layers.0.mlp.down_proj.bias", 2)

    assert matrix == (((0, 12), (10, 15)), (0, 0), (12, 5))
    assert bias == (((0, 12),), (0,), (12,))


def test_matrices_that_a_model_stores_transposed_are_divided_along_the_other_dim():
    (matrix,) = stored(small("gpt2"), placed("tp2"), "transformer.h.0.mlp.c_fc.weight", 1)

    assert matrix == (((0, 12), (10, 20)), (0, 0), (12, 10))


def test_an_engine_pads_the_vocabulary_to_a_multiple_of_64_before_dividing_it():
    shape = small("llama", vocab_size=100)
    engine = placed("tp4", storage=Storage.ENGINE)

    found = [stored(shape, engine, "lm_head.weight", rank) for rank in range(4)]

    boxes = [[box[0] for box, _, _ in pieces] for pieces in found]
    assert boxes == [[(0, 32)], [(32, 64)], [(64, 96)], [(96, 100)]]
    assert {shard for pieces in found for _, _, shard in pieces} == {(32, 12)}


@pytest.mark.parametrize(("layers", "counts"), [(6, [2, 2, 2]), (7, [2, 3, 2]), (8, [3, 3, 2])])
def test_layers_that_do_not_divide_evenly_stand_before_the_last_stage(layers, counts):
    shape = small("llama", num_hidden_layers=layers)

    held = [stages(bundle, layers, 3) for bundle in bundles(shape) if "o_proj" in bundle.tensor]

    assert [held.count({stage}) for stage in range(3)] == counts


def test_a_tied_embedding_is_on_the_first_stage_and_as_the_head_on_the_last():
    tied, untied = small("qwen2"), small("llama")
    sharding = placed("pp2")

    assert rows(tied, sharding, "model.embed_tokens.weight") == [[(0, 37)], [(0, 37)]]
    assert rows(untied, sharding, "model.embed_tokens.weight") == [[(0, 37)], []]
    assert rows(untied, sharding, "lm_head.weight") == [[], [(0, 37)]]


def test_experts_are_divided_over_ranks_and_what_is_not_an_expert_is_replicated():
    shape = small("qwen3_moe")
    sharding = placed("ep2")

    assert rows(shape, sharding, "model.layers.0.mlp.experts.down_proj") == [[(0, 3)], [(3, 5)]]
    assert rows(shape, sharding, "model.layers.0.self_attn.q_proj.weight") == [[(0, 12)]] * 2


def test_whole_experts_are_divided_over_the_ranks_of_tp_too():
    shape = small("qwen3_moe", num_experts=4)
    cut, uncut = placed("tp2"), placed("tp2+ep")

    experts = "model.layers.0.mlp.experts.down_proj"
    assert stored(shape, cut, experts, 1)[0][0] == ((0, 4), (0, 12), (2, 4))
    assert stored(shape, uncut, experts, 1)[0][0] == ((2, 4), (0, 12), (0, 4))


def test_fsdp_cuts_what_tp_leaves():
    """2 ranks of tp have 18 and 19 of 37 rows, 3 of fsdp a third of those, rounded up."""
    found = rows(small("llama"), placed("fsdp3 x tp2"), "lm_head.weight")

    assert found == [[(0, 7)], [(19, 25)], [(7, 14)], [(25, 31)], [(14, 19)], [(31, 37)]]


def test_a_placement_has_as_many_ranks_as_its_layout():
    with pytest.raises(RunFileError) as refused:
        Sharding(Layout.parse("tp2 x dp2"), (0, 1, 1, 2))

    assert str(refused.value) == snapshot("""\
the layout `tp2 x dp2` is of 4 different GPUs; got 4: 0, 1, 1, 2
help: the product of a layout's axes is the size of its pool\
""")
