"""Bytes of a seat, item by item, against numbers worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from flowrl.compiler.cost.cache import (
    at_once,
    lacking_bytes,
    peak_tokens,
    sharing,
    token_bytes,
)
from flowrl.compiler.cost.memory import Memory, memory
from flowrl.compiler.cost.rank import Rank
from flowrl.compiler.shapes import known_shape
from flowrl.compiler.target import Lengths, Reserve, Workload
from flowrl.compiler.tasks import Seat
from flowrl.ir.layout import Layout
from tests.compiler.cost.targets import target

SMALL, SEVEN, SEVENTY = (
    known_shape(name) for name in ("smollm2-135m", "qwen2.5-7b", "llama-2-70b")
)
TRAIN, SCORE, GENERATE = (Seat("policy", use) for use in ("train", "score", "generate"))


def bytes_of(seat, shape, layout, machines="8xH100", sequences=1024, cache_share=1.0, **how):
    parsed = Layout.parse(layout)
    its = target(machines, **how)
    return memory(seat, shape, parsed, range(parsed.size), its, sequences, cache_share)


def test_a_trained_7b_model_takes_18_bytes_a_parameter():
    one = bytes_of(TRAIN, SEVEN, "1")

    assert one.weights == 2 * 7_615_616_512  # 15.2 GB
    assert one.gradients == 4 * 7_615_616_512
    assert one.optimizer == 12 * 7_615_616_512  # float32 master, two moments


def test_fsdp_divides_all_three_and_gathers_two_layers_and_the_ends():
    eight = bytes_of(TRAIN, SEVEN, "fsdp8")
    logits = 4096 * 600 / 856 * 152064 * 14  # of responses
    ends = 2 * 152064 * 3584 + 3584
    layer = (SEVEN.count - ends) / 28
    whole = 1.3 * 2 * layer * (2 + 4) + ends * (4 + 4)  # tables travel as they are kept

    assert eight.weights == pytest.approx(4 * SEVEN.count / 8, rel=1e-6)  # and narrow as they leave
    assert eight.optimizer == pytest.approx(8 * SEVEN.count / 8, rel=1e-6)
    assert eight.buffers == pytest.approx(1.3 * logits + whole, rel=1e-6)


def test_a_divided_scorer_has_the_ends_whole_as_it_holds_them():
    narrow = bytes_of(SCORE, SEVEN, "fsdp8", table_bytes=4)
    table, head = (n * 152064 * 3584 for n in (4, 2))

    alone = bytes_of(SCORE, SEVEN, "1", table_bytes=4)

    layer = (alone.weights - table - head - 4 * 3584) / 28
    whole = 1.3 * 2 * layer + table + head + 4 * 3584
    assert narrow.buffers - alone.buffers == pytest.approx(whole, rel=1e-6)


def test_checkpointed_layers_keep_their_input():
    whole = bytes_of(TRAIN, SEVEN, "1", microbatch_tokens=1000)
    few = bytes_of(TRAIN, SEVEN, "1", microbatch_tokens=1000, checkpointing=True)
    layer = 20 * 3584 + 4 * (3584 + 512) + 8 * 18944

    assert whole.activations == 1000 * 28 * layer
    assert few.activations == 1000 * (28 * 2 * 3584 + layer)


def test_a_scorer_has_weights_and_passing_activations():
    scorer = bytes_of(SCORE, SEVEN, "1")

    assert scorer.items["optimizer"] == scorer.items["gradients"] == 0
    assert scorer.activations == 4096 * (8 * 3584 + 4 * (3584 + 512) + 6 * 18944)


def test_a_critic_has_no_logits():
    assert bytes_of(SCORE, known_shape("qwen2.5-7b", "value"), "1").buffers == 0


def test_an_engine_holds_the_caches_of_all_that_it_runs_at_once():
    one = bytes_of(
        GENERATE, SMALL, "1", "1xH200", sequences=1024, prompts=128, prompt=64, response=128
    )

    assert one.kv_cache == 1024 * (64 // 8 + 128) * 23040  # 8 samples share a prompt's


def test_an_engine_takes_no_more_than_its_share_of_what_is_free():
    its = target(sequences=None)
    one = memory(GENERATE, SEVEN, Layout(), range(1), its, 10**6)
    free = 0.95 * 81_559 * 2**20 - 2e9 - one.weights

    assert one.kv_cache == pytest.approx(0.9 * free, rel=1e-3)


@pytest.mark.parametrize("sequences", [1, 10**6])
def test_an_engine_takes_the_share_that_it_reserves_whatever_its_samples_need(sequences):
    reserve = Reserve("vLLM", 0.4)

    one = bytes_of(GENERATE, SMALL, "1", "1xH200", sequences=sequences, reserve=reserve)

    assert one.total == round(0.4 * 143_771 * 2**20)
    assert one.asleep("resident").total == one.total - one.buffers
    assert one.asleep("alias").total == one.total - one.buffers - one.weights
    assert one.asleep("offload") == one.asleep("drop") == Memory(engine=2_000_000_000)


def test_a_cache_of_a_given_size_is_reserved_beside_the_weights():
    reserve = Reserve("vLLM", 0.4, 3 * 2**30)

    one = bytes_of(GENERATE, SMALL, "1", "1xH200", reserve=reserve)

    assert one.kv_cache == one.asleep("resident").kv_cache == 3 * 2**30


def test_what_is_reserved_bounds_how_many_sequences_run_at_once():
    its = target("1xH200", reserve=Reserve("vLLM", 0.1, 2**30), sequences=None)

    rank = Rank.of("generate", "policy", SEVEN, Layout(), range(1), its)

    assert at_once(rank, 10**4) == pytest.approx(
        2**30 / token_bytes(rank) / peak_tokens(rank.workload, at_once(rank, 10**4), 156.25),
        rel=1e-2,
    )
    assert lacking_bytes(rank) == 0


def test_a_reserve_lacks_what_the_longest_sequence_needs_beside_the_weights():
    its = target("1xH200", reserve=Reserve("vLLM", 0.1))

    rank = Rank.of("generate", "policy", SEVEN, Layout(), range(1), its)

    need = 2 * SEVEN.count + 2_000_000_000 + (256 + 600) * token_bytes(rank)
    assert lacking_bytes(rank) == round(need - 0.1 * 143_771 * 2**20)


def test_half_the_cache_runs_half_the_sequences():
    whole, half = (bytes_of(GENERATE, SEVEN, "1", cache_share=share) for share in (1.0, 0.5))

    assert half.kv_cache == pytest.approx(whole.kv_cache / 2)


def test_key_heads_bound_how_far_tensor_parallelism_divides_a_cache():
    caches = [
        bytes_of(GENERATE, SEVENTY, f"tp{n}", "2x8xH200", sequences=64).kv_cache for n in (4, 8, 16)
    ]

    assert caches[0] == 2 * caches[1]
    assert caches[1] == caches[2]


def test_a_cache_is_fullest_before_many_have_ended():
    lengths = Lengths.of([(100, 9), (1000, 1)])
    workload = Workload(1, Lengths.of(10), lengths)

    assert peak_tokens(workload, 1000, 1) == 110  # a tenth of 1,010 is less
    assert peak_tokens(workload, 1, 1) == 1010
    assert peak_tokens(workload, 1000, 10) == 101.0


def test_samples_of_a_prompt_share_its_cache():
    workload = Workload(prompts=64)

    assert sharing(workload, 512) == 8
    assert sharing(workload, 32) == 1
    assert sharing(workload, float("inf")) == 1


@given(
    st.sampled_from([TRAIN, SCORE, GENERATE]),
    st.sampled_from(["1", "fsdp2", "tp2", "pp2", "tp2 x fsdp2", "dp2"]),
    st.sampled_from([SMALL, SEVEN, known_shape("mixtral-8x7b")]),
)
def test_more_gpus_of_any_kind_never_hold_more_weights(seat, layout, shape):
    one, more = bytes_of(seat, shape, "1"), bytes_of(seat, shape, layout)

    assert more.weights <= one.weights
    assert more.optimizer <= one.optimizer


def test_a_sleeping_seat_keeps_what_its_residency_says():
    seat = Memory(weights=1, gradients=2, optimizer=4, activations=8, engine=16, buffers=32)

    assert seat.total == 63
    assert seat.asleep("resident") == Memory(weights=1, optimizer=4, engine=16)
    assert seat.asleep("offload") == seat.asleep("drop") == Memory(engine=16)
    assert (seat.host("offload"), seat.host("drop")) == (5, 0)
    assert seat.awake("alias").total == 62


def test_items_of_ppo_at_7b_on_eight_gpus():
    shown = {
        str(seat): {
            item: round(size / 1e9, 2)
            for item, size in bytes_of(seat, SEVEN, layout, checkpointing=True).items.items()
            if size
        }
        for seat, layout in ((TRAIN, "fsdp8"), (SCORE, "fsdp8"), (GENERATE, "tp2 x dp4"))
    }

    assert shown == snapshot(
        {
            "policy.train": {
                "weights": 3.81,
                "gradients": 3.81,
                "optimizer": 7.62,
                "activations": 1.8,
                "engine": 0.6,
                "buffers": 20.3,
            },
            "policy.score": {"weights": 1.9, "activations": 0.65, "engine": 0.6, "buffers": 6.8},
            "policy.generate": {"weights": 7.62, "kv_cache": 4.52, "engine": 2.0, "buffers": 0.12},
        }
    )
