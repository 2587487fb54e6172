"""Reshard plans of models by hand."""

import os
import subprocess
import sys
from collections import Counter

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Sharding, Storage
from flowrl.compiler.reshard import plan_reshard
from flowrl.compiler.shapes.known import known_shape
from flowrl.errors import RunFileError
from flowrl.ir.layout import Layout
from tests.compiler.layouts.models import placed, small

ONE_NODE = Machines.parse("8xH100")


def test_a_plan_is_the_same_in_every_process():
    code = (
        "from flowrl.compiler.hardware import Machines\n"
        "from flowrl.compiler.reshard import plan_reshard\n"
        "from tests.compiler.layouts.models import placed, small\n"
        "src, dst = placed('fsdp3 x dp4'), placed('pp2 x tp2 x dp2', 4)\n"
        "plan = plan_reshard(small('llama'), src, dst, Machines.parse('2x6xH100'))\n"
        "print(*plan.sends(), *plan.copies(), *plan.aliases(), sep='\\n')\n"
    )

    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(printed) == 1


def test_a_plan_follows_the_layers_of_the_model():
    shape = small("llama")
    plan = plan_reshard(shape, placed("fsdp4"), placed("tp2", 4), ONE_NODE)

    layers = [layer_of(send.parameter) for send in plan.sends()]

    assert layers == sorted(layers)


def layer_of(name):
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else 99


def test_replicas_take_turns_to_send_and_to_hand_on():
    """Either of two replicas has every layer; three ranks on another node want them all."""
    shape = known_shape("qwen2.5-0.5b")
    largest = 2 * shape.vocab * shape.hidden

    plan = plan_reshard(shape, placed("dp2"), placed("dp3", 4), Machines.parse("2x4xH100"))

    sent = Counter()
    for send in plan.sends():
        sent[send.source, send.hop] += send.bytes
    assert sent.keys() == {(0, 0), (1, 0), (4, 1), (5, 1), (6, 1)}
    assert sent[0, 0] + sent[1, 0] == 2 * shape.count
    assert abs(sent[0, 0] - sent[1, 0]) <= largest
    assert max(sent[rank, 1] for rank in (4, 5, 6)) <= 2 * (2 * shape.count / 3 + largest)


def test_two_replicas_on_a_node_share_what_the_network_brings():
    """Each of 8 ranks needs a quarter of the model, and gets an eighth from the other node."""
    shape = known_shape("llama-2-7b")
    cluster = Machines.parse("2x8xH100")

    plan = plan_reshard(shape, placed("fsdp8", element_bytes=4), placed("tp4 x dp2", 8), cluster)

    share = 2 * shape.count / 8
    assert plan.bytes_moved == pytest.approx(2 * 8 * share, rel=0.001)
    assert plan.bottleneck.bytes == pytest.approx(share, rel=0.03)
    assert plan.seconds == pytest.approx(share / cluster.nodes[1].network_share, rel=0.03)


@pytest.mark.parametrize(("trainers", "hops"), [("fsdp8", 8), ("fsdp16", 4), ("fsdp64", 1)])
def test_where_trainers_are_few_generators_pass_weights_on(trainers, hops):
    """8 nodes generate: whatever the trainers, no network card sends more than one receives."""
    shape = known_shape("llama-2-7b")
    cluster, src = Machines.parse("16x8xH100"), placed(trainers, element_bytes=4)

    plan = plan_reshard(shape, src, placed("tp8 x dp8", 64), cluster)

    received = 2 * shape.count / 8
    assert plan.bottleneck.bytes == pytest.approx(received, rel=0.03)
    matrices = (send for send in plan.sends() if "proj" in send.parameter)
    assert max(send.hop for send in matrices) + 1 == hops


def test_float32_masters_are_sent_as_the_bfloat16_that_is_needed():
    shape = small("llama")
    masters = placed("dp1", element_bytes=4)

    plan = plan_reshard(shape, masters, placed("dp1", 1), ONE_NODE)

    assert plan.bytes_moved == 2 * shape.count


def test_an_engine_on_the_same_rank_with_other_storage_needs_copies_of_what_it_joins_or_pads():
    shape = small("llama", num_hidden_layers=1, vocab_size=64)

    plan = plan_reshard(shape, placed("1"), placed("1", storage=Storage.ENGINE), ONE_NODE)

    assert plan.bytes_moved == 0
    assert [copy.parameter.removesuffix(".weight") for copy in plan.copies()] == snapshot(
        [
            "model.layers.0.self_attn.q_proj",
            "model.layers.0.self_attn.k_proj",
            "model.layers.0.self_attn.v_proj",
            "model.layers.0.mlp.gate_proj",
            "model.layers.0.mlp.up_proj",
            "model.layers.0.mlp.gate_proj.bias",
            "model.layers.0.mlp.up_proj.bias",
        ]
    )
    assert [alias.tensor for alias in plan.aliases()] == snapshot(
        [
            "model.layers.0.self_attn.o_proj.weight",
            "model.layers.0.mlp.down_proj.weight",
            "model.layers.0.mlp.down_proj.bias",
            "model.layers.0.input_layernorm.weight",
            "model.layers.0.post_attention_layernorm.weight",
            "model.embed_tokens.weight",
            "model.norm.weight",
            "lm_head.weight",
        ]
    )


def test_training_in_the_engines_own_storage_moves_and_copies_nothing():
    shape = small("qwen2")
    shared = placed("tp2", storage=Storage.ENGINE)

    plan = plan_reshard(shape, shared, shared, ONE_NODE)

    assert plan.bytes_moved == plan.bytes_copied == plan.seconds == 0
    assert {alias.start for alias in plan.aliases()} == {0}
    assert str(plan) == snapshot(
        "tp2 -> tp2: 0 bytes over links (1.00 of the lower bound), 0 copied, 0 s: nothing moves"
    )


def test_experts_that_a_rank_keeps_are_rows_of_what_it_has():
    shape = small("qwen3_moe", num_experts=4)

    plan = plan_reshard(shape, placed("dp2"), placed("ep2"), ONE_NODE)

    experts = {(a.rank, a.start) for a in plan.aliases() if "experts.down_proj" in a.tensor}
    assert experts == {(0, 0), (1, 2)}


def test_a_layout_that_does_not_fit_is_refused_before_anything_is_planned():
    with pytest.raises(RunFileError) as refused:
        plan_reshard(small("llama"), placed("tp8"), placed("1"), ONE_NODE)

    assert str(refused.value) == snapshot("""\
the layout `tp8` doesn't fit this llama model: `tp` 8 doesn't divide the 4 heads of `model.layers.0.self_attn.q_proj.weight`
help: divide by fewer, and fill the pool with `dp` or `fsdp`\
""")


def test_ranks_that_do_not_exist_are_refused():
    with pytest.raises(RunFileError) as refused:
        plan_reshard(small("llama"), placed("fsdp4", 6), placed("1"), ONE_NODE)

    assert str(refused.value) == snapshot("""\
the layout `fsdp4` lies on the ranks 6 to 9; `8xH100` has 0 to 7
help: give more GPUs, or smaller pools\
""")


def test_a_plan_says_what_moves_and_what_takes_longest():
    shape = known_shape("qwen2.5-7b")
    cluster = Machines.parse("4x8xA100-80G")
    generation = Sharding(Layout.parse("tp4 x dp8"), range(32), Storage.ENGINE)

    plan = plan_reshard(shape, placed("fsdp32", element_bytes=4), generation, cluster)

    assert str(plan) == snapshot(
        "fsdp32 -> tp4 x dp8: 118051555328 bytes over links (1.00 of the lower bound), 3808114688 copied, 0.0705 s: rank 1 receives over the network"
    )
