"""Plans carried out by processes bring every rank the weights that it needs, and no other bytes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Storage
from flowrl.errors import EngineError
from flowrl.runtime.reshard import Sent, Wire, reshard
from flowrl.train.moves import move_of
from tests.compiler.layouts.models import models, placed, shardings, small
from tests.runtime.reshard.carried import NODE, RANKS, Case, carried, ends

NODES = Machines.parse("3x2xH100")
PAIRS = [
    # trainer, from rank; generator, from rank
    ("fsdp2", 0, "tp2 x dp2", 2),
    ("fsdp4", 0, "tp2 x dp2", 0),
    ("fsdp4", 0, "tp2 x dp2", 2),
    ("fsdp4", 0, "dp2", 4),
    ("fsdp2", 0, "dp4", 2),
    ("fsdp4", 0, "dp4", 0),
    ("tp2 x dp2", 1, "fsdp4", 0),
    ("fsdp2 x dp2", 0, "tp2 x dp2", 2),
    ("fsdp6", 0, "tp2 x dp3", 0),
]
KINDS = {
    "tied, biases of queries and keys": small("qwen2"),
    "untied, biases of gate and up": small("llama"),
    "one head of keys": small("qwen3"),
    "queries and keys in one matrix": small("phi3"),
}


def in_place(plan, shape):
    """Bytes of the tensors that a plan takes for views, which tests have apart."""
    shapes = {
        (rank, shard.tensor): shard.shape
        for rank in plan.dst.ranks
        for shard in plan.dst.tensors(rank, shape)
    }
    views = [shapes[alias.rank, alias.tensor] for alias in plan.aliases()]
    return sum(map(math.prod, views)) * plan.dst.element_bytes


def assert_carried(case, found):
    """Assert that all weights are there, and that the bytes are those of the plan."""
    plan = case.plan
    assert [got.wrong for got in found] == [[]] * RANKS
    assert sum(got.sent.sent for got in found) == plan.bytes_moved
    assert sum(got.sent.received for got in found) == plan.bytes_moved
    assert sum(got.sent.copied for got in found) == plan.bytes_copied + in_place(plan, case.shape)


@pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[2]}-{pair[3]}")
def test_a_trainers_weights_come_to_an_engines_own_tensors(pair, shape, on_ranks):
    trainer, first, generator, start = pair
    src = placed(trainer, first, element_bytes=4)
    dst = placed(generator, start, storage=Storage.ENGINE)

    for machines in (NODE, NODES):
        case = Case(shape, src, dst, machines)

        assert_carried(case, on_ranks(carried, case))


@st.composite
def cases(draw):
    """Any model, any two shardings of it on some of the ranks, any buffers."""
    shape = draw(models)
    src, dst = (draw(shardings(shape, RANKS)) for _ in range(2))
    return Case(shape, src, dst, NODES, draw(st.sampled_from([40, 500, 1 << 20])))


@settings(max_examples=60)
@given(case=cases())
def test_any_weights_come_from_any_layout_to_any_other(case, on_ranks):
    assert_carried(case, on_ranks(carried, case))


def lone(dst="1", **how):
    case = Case(small("qwen2"), placed("1"), placed(dst, **how))
    held, needed = ends(case, 0)
    return move_of(case.plan, case.shape, 0), held, needed


def test_a_tensor_that_shares_its_storage_is_not_copied():
    move, held, _ = lone()

    assert reshard(move, held, dict(held), Wire(torch.bfloat16)) == Sent(0, 0, 0)


def test_padding_is_left_as_it_is():
    move, held, needed = lone(storage=Storage.ENGINE)
    table = needed["model.embed_tokens.weight"]
    table[...] = 7

    reshard(move, held, needed, Wire(torch.bfloat16))

    assert torch.equal(table[:37], held["model.embed_tokens.weight"])
    assert (table[37:] == 7).all()


def test_an_engine_with_other_tensors_than_the_layout_says_is_refused():
    move, held, needed = lone()
    name = "model.norm.weight"

    with pytest.raises(EngineError) as other_shape:
        reshard(move, held, needed | {name: torch.zeros(5)}, Wire(torch.bfloat16))
    with pytest.raises(EngineError) as missing:
        reshard(move, {key: held[key] for key in held if key != name}, needed, Wire(torch.bfloat16))
    with pytest.raises(EngineError) as wider:
        reshard(move, held, needed, Wire(torch.float32))

    assert str(other_shape.value) == snapshot("""\
in the new layout, rank 0 has `model.norm.weight` in the shape (12,); its engine has (5,)
help: the model's config.json and its weights must be of one model\
""")
    assert str(missing.value) == snapshot("""\
in the old layout, rank 0 has `model.norm.weight` in the shape (12,); its engine has none
help: the model's config.json and its weights must be of one model\
""")
    assert str(wider.value) == snapshot(
        "the plan sends numbers of 2 bytes; the engines' narrower type is torch.float32, of 4"
    )
