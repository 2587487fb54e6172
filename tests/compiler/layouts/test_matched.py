"""FSDP shards inside those that generation needs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, Storage, matched
from flowrl.compiler.reshard import plan_reshard
from flowrl.compiler.shapes.known import known_shape
from flowrl.ir.box import common, elements
from flowrl.ir.layout import Layout
from tests.compiler.layouts.models import placed, small

NODE = Machines.parse("8xH100")
MATRICES = ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens", "lm_head")


def moved(shape, src, dst):
    return plan_reshard(shape, src, dst, NODE).bytes_moved


@settings(max_examples=50)
@given(
    st.sampled_from(["tp4", "tp2 x dp2", "tp4 x dp2", "pp2 x tp2", "pp2 x tp2 x dp2"]), st.data()
)
def test_every_chunk_of_a_matrix_is_a_part_of_its_ranks_own_shard(text, data):
    shape = small("llama", hidden_size=16, head_dim=4, intermediate_size=32, vocab_size=64)
    layout = Layout.parse(text)
    ranks = data.draw(st.permutations(range(8)))[: layout.size]
    generation = Sharding(Layout(tp=layout.tp, dp=layout.size // layout.tp), ranks)
    training = matched(generation)

    assert set(training.ranks) == set(ranks)
    for rank in ranks:
        needed = {p.parameter: p.box for s in generation.tensors(rank, shape) for p in s.pieces}
        for shard in training.tensors(rank, shape):
            for piece in shard.pieces:
                if any(name in piece.parameter for name in MATRICES):
                    assert common(piece.box, needed[piece.parameter]) == piece.box


def test_where_tp_fills_the_pool_only_norms_move():
    shape = known_shape("llama-3.1-8b")
    generation = placed("tp8", storage=Storage.ENGINE)
    norms = sum(p.count for p in shape.parameters() if p.kind.value == "norm")

    by_rows = moved(shape, placed("fsdp8", element_bytes=4), generation)
    along = moved(shape, matched(generation), generation)

    assert along == 2 * 8 * norms * 7 // 8
    assert by_rows / along > 1000


def test_of_two_replicas_each_rank_lacks_half_of_its_shard():
    """A rank generates from a quarter of the 7B, and trains an eighth: it lacks one eighth."""
    shape = known_shape("llama-2-7b")
    generation = placed("tp4 x dp2", storage=Storage.ENGINE)

    by_rows = moved(shape, placed("fsdp8", element_bytes=4), generation)
    along = moved(shape, matched(generation), generation)

    assert along == pytest.approx(2 * 8 * shape.count / 8, rel=0.001)
    assert by_rows / along == pytest.approx(1.75, rel=0.01)


def test_experts_are_matched_to_the_ranks_that_hold_them_whole():
    shape = known_shape("qwen3-30b-a3b")
    whole = placed("tp4+ep x dp2", storage=Storage.ENGINE)

    along = plan_reshard(shape, matched(whole), whole, NODE)

    experts = [send for send in along.sends() if "experts" in send.parameter]
    expected = sum(p.count for p in shape.parameters() if p.experts is not None)
    assert sum(elements(send.box) for send in experts) == expected  # of 2 replicas, half each
