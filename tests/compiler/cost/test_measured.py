"""The default profile against one H200: every phase within a sixth, memory within a sixteenth.

A hand-written loop, no framework: vLLM 0.26 generates; packed transformers layers (torch 2.11) score
and train in bfloat16. Fixed lengths, one update a step. The profile's speeds are from FITTED alone;
HELD_OUT are other sizes, microbatches, and checkpointing. docs/compiler.md has the tables, and says
what these runs corrected.
"""

import pytest

from flowrl.compiler.cost.memory import memory
from flowrl.compiler.cost.seconds import seconds
from flowrl.compiler.shapes import known_shape
from flowrl.compiler.tasks import Seat
from flowrl.ir.layout import Layout
from tests.compiler.cost.targets import target, task

LONG = {"prompt": 256, "response": 600, "head_tokens": 8192}
SHORT = {"prompt": 64, "response": 128, "head_tokens": 8192}
HALF, SMALL, SEVEN = "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"
TINY = "smollm2-135m"

W1 = (SMALL, 512, LONG | {"prompts": 64, "microbatch_tokens": 16384})
W3 = (TINY, 1024, SHORT | {"prompts": 128, "microbatch_tokens": 32768})
COMPILED, CHECKPOINTED = {"compiled": True}, {"checkpointing": True}
BF16 = {"gradient_bytes": 2, "master_bytes": 0, "moment_bytes": 4}  # all of two bytes

FITTED = [  # model, sequences, workload; what else; kind; seconds measured; predicted / measured
    (W1, {}, "generate", 7.67, 1.05),
    (W1, {}, "logprobs", 3.57, 1.09),
    (W1, {}, "update", 10.7, 1.09),
    (W1, COMPILED, "update", 8.44, 1.06),
    (W3, {}, "generate", 3.26, 0.97),
    (W3, {}, "logprobs", 0.42, 0.94),
    (W3, {}, "update", 1.30, 0.88),
    (W3, COMPILED, "update", 0.72, 0.98),
]

HALF_32K = (HALF, 512, LONG | {"microbatch_tokens": 32768})
SMALL_8K = (SMALL, 512, LONG | {"microbatch_tokens": 8192})
SEVEN_8K = (SEVEN, 256, LONG | {"microbatch_tokens": 8192} | BF16)
SEVEN_16K = (SEVEN, 256, LONG | {"microbatch_tokens": 16384} | BF16)

HELD_OUT = [  # model, sequences, workload; what else; seconds and ratio of each kind; GB in use at the end
    (HALF_32K, {}, (1.70, 1.03), (4.92, 1.07), (79.1, 1.02)),
    (HALF_32K, CHECKPOINTED, (1.72, 1.03), (6.07, 1.09), (34.8, 1.03)),
    (SMALL_8K, {}, (3.84, 1.02), (11.65, 1.00), (67.5, 1.04)),
    (W1, CHECKPOINTED, (3.67, 1.06), (13.57, 1.11), (55.2, 0.99)),
    (SEVEN_8K, {}, (6.44, 0.96), (19.25, 0.96), (127.3, 1.04)),
    (SEVEN_16K, CHECKPOINTED, (6.15, 1.00), (22.87, 1.06), (92.2, 0.99)),
    (W3, CHECKPOINTED, (0.40, 0.98), (1.73, 0.85), (11.8, 1.05)),
]

HALF_4K = (HALF, 512, LONG | {"microbatch_tokens": 4096})
SMALL_4K = (SMALL, 512, LONG | {"microbatch_tokens": 4096})
TINY_4K = (TINY, 1024, SHORT | {"microbatch_tokens": 4096})

LAUNCHED = [  # small microbatches wait for Python; two GPUs: layout, seconds and ratio of each kind
    (TINY_4K, {}, "1", (1.17, 1.12), (5.49, 1.07)),
    (TINY_4K, COMPILED, "1", (0.70, 0.96), (2.76, 1.07)),
    (HALF_4K, {}, "1", (2.87, 0.89), (12.33, 0.93)),
    (SMALL_4K, {}, "1", (3.97, 0.98), (14.24, 0.93)),
    (W1, {}, "dp2", (1.82, 1.08), (5.42, 1.08)),
    (SMALL_4K, {}, "dp2", (2.04, 0.96), (7.68, 0.87)),
    (W1, {}, "fsdp2", (1.99, 0.98), (5.93, 0.99)),
    (SMALL_4K, {}, "fsdp2", (5.23, 0.93), (14.93, 0.90)),
]


def predicted(work, how, kind, layout="1"):
    model, sequences, sizes = work
    its, parsed = target("2xH200", **sizes, **how), Layout.parse(layout)
    ranks = range(parsed.size)
    return seconds(task(kind, sequences), known_shape(model), parsed, ranks, its).seconds


@pytest.mark.parametrize(("work", "how", "kind", "measured", "ratio"), FITTED)
def test_what_the_profile_is_from_is_predicted_within_an_eighth(work, how, kind, measured, ratio):
    assert round(predicted(work, how, kind) / measured, 2) == ratio
    assert abs(ratio - 1) <= 1 / 8


@pytest.mark.parametrize(("work", "how", "scored", "updated", "peak"), HELD_OUT)
def test_what_it_is_not_from_is_predicted_within_a_sixth(work, how, scored, updated, peak):
    for kind, (measured, ratio) in (("logprobs", scored), ("update", updated)):
        assert predicted(work, how, kind) / measured == pytest.approx(ratio, abs=0.015)
        assert abs(ratio - 1) <= 1 / 6


@pytest.mark.parametrize(("work", "how", "layout", "scored", "updated"), LAUNCHED)
def test_small_microbatches_and_two_gpus_are_predicted_within_a_sixth(
    work, how, layout, scored, updated
):
    for kind, (measured, ratio) in (("logprobs", scored), ("update", updated)):
        assert predicted(work, how, kind, layout) / measured == pytest.approx(ratio, abs=0.015)
        assert abs(ratio - 1) <= 1 / 6


@pytest.mark.parametrize(("work", "how", "scored", "updated", "peak"), HELD_OUT)
def test_memory_in_use_is_predicted_within_a_sixteenth(work, how, scored, updated, peak):
    (model, _, sizes), (measured, ratio) = work, peak
    its = target("1xH200", **sizes, **how)
    items = memory(Seat("policy", "train"), known_shape(model), Layout(), range(1), its)

    assert items.total / 1e9 / measured == pytest.approx(ratio, abs=0.01)
    assert abs(ratio - 1) < 1 / 16


def test_whole_steps_are_predicted_within_an_eighth():
    for work, measured in ((W1, 22.1), (W3, 5.13)):
        step = sum(predicted(work, {}, kind) for kind in ("generate", "logprobs", "update"))

        assert step == pytest.approx(measured, rel=1 / 8)
