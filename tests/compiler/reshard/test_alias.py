"""Which tensors can be views of tensors that are there."""

import pytest

from flowrl.compiler.layouts import Piece, Shard, Storage
from flowrl.compiler.reshard.alias import row_in
from tests.compiler.layouts.models import placed, small

SHAPE = small("llama", num_hidden_layers=1, vocab_size=100)
ATTENTION = "model.layers.0.self_attn"


def tensor(sharding, name, rank=0):
    return next(s for s in sharding.tensors(rank, SHAPE) if s.tensor == name)


def joined(layout="1"):
    return tensor(placed(layout, storage=Storage.ENGINE), f"{ATTENTION}.qkv_proj.weight")


@pytest.mark.parametrize(("name", "row"), [("q_proj", 0), ("k_proj", 12), ("v_proj", 18)])
def test_a_parameter_is_rows_of_the_tensor_that_joins_it(name, row):
    assert row_in(joined(), tensor(placed("1"), f"{ATTENTION}.{name}.weight")) == row


def test_a_tensor_that_joins_parameters_is_no_view_of_one_of_them():
    assert row_in(tensor(placed("1"), f"{ATTENTION}.q_proj.weight"), joined()) is None


def test_a_shard_of_joined_parameters_is_no_view_of_them_whole():
    """Its queries, keys and values lie apart there."""
    assert row_in(joined("1"), joined("tp2")) is None


def test_rows_are_a_view_and_columns_are_none():
    down, gate = "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.gate_proj.weight"

    assert row_in(tensor(placed("1"), gate), tensor(placed("tp2"), gate, 1)) == 10
    assert row_in(tensor(placed("1"), down), tensor(placed("tp2"), down, 1)) is None


def test_padding_is_no_view_of_rows_that_are_not_there_or_not_padding():
    head = "lm_head.weight"
    bare, padded = placed("1"), placed("1", storage=Storage.ENGINE)
    crowded = Shard(head, (128, 12), (
        Piece(head, ((0, 100), (0, 12)), (0, 0)), Piece("other", ((0, 28), (0, 12)), (100, 0)),
    ))  # fmt: skip

    assert row_in(tensor(bare, head), tensor(padded, head)) is None
    assert row_in(crowded, tensor(padded, head)) is None
    assert row_in(tensor(padded, head), tensor(bare, head)) == 0
    assert row_in(tensor(padded, head), tensor(padded, head)) == 0
