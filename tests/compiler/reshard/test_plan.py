"""Reshard plans: complete, minimal, balanced, the same every time."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.hardware import Machines
from flowrl.compiler.layouts import Placement, Storage
from flowrl.compiler.reshard import plan_reshard, reshard_cost
from flowrl.compiler.shapes.known import known_shape
from flowrl.errors import RunFileError
from flowrl.ir.layout import Layout
from tests.compiler.layouts.models import machines, models, placed, placements, small
from tests.compiler.reshard.execute import executed, numbers, same, slices, stored, tensors_of

ONE_NODE = Machines.parse("8xH100")


@st.composite
def cases(draw):
    """A model, two placements of it on the same machines, and those machines."""
    shape = draw(models)
    return shape, draw(placements(shape)), draw(placements(shape)), draw(machines)


@settings(max_examples=300)
@given(cases())
def test_executed_plans_leave_every_rank_what_the_whole_model_gives_it(case):
    shape, src, dst, cluster = case
    whole = numbers(shape)

    plan = plan_reshard(shape, src, dst, cluster)

    assert same(executed(plan, shape, stored(whole, shape, src)), stored(whole, shape, dst))


@settings(max_examples=50)
@given(cases(), st.data())
def test_any_send_that_is_lost_is_missed(case, data):
    shape, src, dst, cluster = case
    plan, whole = plan_reshard(shape, src, dst, cluster), numbers(shape)
    sends = list(plan.sends())
    lost = [data.draw(st.sampled_from(sends))] if sends else []

    got = executed(plan, shape, stored(whole, shape, src), without=lost)

    assert same(got, stored(whole, shape, dst)) == (not lost)


@settings(max_examples=400)
@given(cases())
def test_what_a_rank_needs_and_lacks_is_sent_to_it_once_and_nothing_else_is(case):
    shape, src, dst, cluster = case
    lacks, held = counts(dst, shape), counts(src, shape)
    for rank in set(src.ranks) & set(dst.ranks):
        lacks[rank] = {name: n * (held[rank][name] == 0) for name, n in lacks[rank].items()}

    plan = plan_reshard(shape, src, dst, cluster)

    for send in plan.sends():
        lacks[send.destination][send.parameter][slices(send.box)] -= 1
    assert not any(n.any() for mine in lacks.values() for n in mine.values())
    assert plan.bytes_moved == plan.lower_bound == sum(send.bytes for send in plan.sends())


def counts(placement, shape):
    """How often each rank stores each element of each parameter."""
    found = {}
    for rank, shards in tensors_of(placement, shape).items():
        found[rank] = {p.name: np.zeros(p.shape, np.int8) for p in shape.parameters()}
        for piece in (piece for shard in shards for piece in shard.pieces):
            found[rank][piece.parameter][slices(piece.box)] += 1
    return found


@settings(max_examples=200)
@given(cases())
def test_ranks_of_a_node_that_hold_the_same_send_alike_but_for_one_slice(case):
    shape, src, dst, cluster = case
    sends = list(plan_reshard(shape, src, dst, cluster).sends())
    sent = Counter()
    for send in sends:
        if not send.hop:
            sent[send.source, near(send, cluster)] += send.bytes

    alike = {}
    for rank, shards in tensors_of(src, shape).items():
        alike.setdefault((cluster.node(rank), shards), []).append(rank)

    largest = max((send.bytes for send in sends), default=0)
    for ranks in alike.values():
        for inside in (True, False):
            each = [sent[rank, inside] for rank in ranks]
            assert max(each) - min(each) <= largest


def near(send, cluster):
    return cluster.node(send.source) == cluster.node(send.destination)


@settings(max_examples=200)
@given(cases())
def test_a_node_gets_what_none_of_its_ranks_holds_once_and_nothing_else(case):
    shape, src, dst, cluster = case
    lacks = on_nodes(counts(dst, shape), cluster)
    for node, held in on_nodes(counts(src, shape), cluster).items():
        for name in lacks.get(node, ()):
            lacks[node][name] &= ~held[name]

    for send in plan_reshard(shape, src, dst, cluster).sends():
        if not near(send, cluster):
            wanted = lacks[cluster.node(send.destination)][send.parameter][slices(send.box)]
            assert wanted.all()
            wanted[...] = False

    assert not any(left.any() for node in lacks.values() for left in node.values())


def on_nodes(counts, cluster):
    """What each node holds, by what each rank does."""
    found = {}
    for rank, mine in counts.items():
        node = found.setdefault(cluster.node(rank), {})
        for name, count in mine.items():
            node[name] = node.get(name, False) | (count > 0)
    return found


@settings(max_examples=200)
@given(cases())
def test_a_rank_that_passes_something_on_got_it_one_hop_before(case):
    shape, src, dst, cluster = case
    arrived = {}

    for send in plan_reshard(shape, src, dst, cluster).sends():
        slice_ = send.parameter, send.box
        assert send.hop == arrived.get((send.source, *slice_), -1) + 1
        arrived[send.destination, *slice_] = send.hop


@settings(max_examples=200)
@given(cases())
def test_the_bottleneck_is_the_link_that_takes_longest(case):
    shape, src, dst, cluster = case

    plan = plan_reshard(shape, src, dst, cluster)

    seconds = Counter()
    for send in plan.sends():
        for rank, verb in ((send.source, "sends"), (send.destination, "receives")):
            node = cluster.nodes[cluster.node(rank)]
            inside = near(send, cluster)
            speed = node.gpu.peer_bytes_per_s if inside else node.network_share
            link = (
                "the network" if not inside else "nvlink" if node.gpu.nvlink_bytes_per_s else "pcie"
            )
            seconds[f"rank {rank} {verb} over {link}"] += send.bytes / speed
    sizes = {p.name: p for p in shape.parameters()}
    for copy in plan.copies():
        size = np.zeros(sizes[copy.parameter].shape)[slices(copy.box)].size * dst.element_bytes
        seconds[f"rank {copy.rank} copies in its memory"] += size / cluster.bandwidth(
            copy.rank, copy.rank
        )
    longest = max(seconds.values(), default=0.0)
    assert plan.bottleneck.seconds == pytest.approx(longest)
    assert seconds.get(plan.bottleneck.link, 0.0) == pytest.approx(longest)
    assert reshard_cost(shape, src, dst, cluster) == (plan.bytes_moved, plan.seconds)


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
    generation = Placement(Layout.parse("tp4 x dp8"), range(32), Storage.ENGINE)

    plan = plan_reshard(shape, placed("fsdp32", element_bytes=4), generation, cluster)

    assert str(plan) == snapshot(
        "fsdp32 -> tp4 x dp8: 118051555328 bytes over links (1.00 of the lower bound), 3808114688 copied, 0.0705 s: rank 1 receives over the network"
    )
