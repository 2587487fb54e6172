"""The default profile against what was measured on one H200: every phase within a quarter.

A hand-written loop, no framework: vLLM 0.26 generates; packed transformers layers score and train in
bfloat16 without checkpointing, compiled or not; fixed lengths, one update a step. W1 is Qwen2.5-1.5B,
512 sequences of 256 + 600 tokens; W3 is SmolLM2-135M, 1,024 of 64 + 128. One set of speeds serves both;
they are from these runs, so this shows that the terms scale from one to the other, eleven times larger,
and no more. Predicted / measured:

    W1  generate 1.05   logprobs 1.09   update 1.09   compiled 1.06
    W3  generate 0.97   logprobs 0.94   update 0.88   compiled 0.98
"""

import pytest

from flowrl.compiler.cost.seconds import seconds
from flowrl.compiler.shapes import known_shape
from flowrl.ir.layout import Layout
from tests.compiler.cost.targets import target, task

W1 = {"prompts": 64, "prompt": 256, "response": 600, "microbatch_tokens": 16384}
W3 = {"prompts": 128, "prompt": 64, "response": 128, "microbatch_tokens": 32768}

MEASURED = [
    (known_shape("qwen2.5-1.5b"), 512, W1, "generate", False, 7.67, 1.05),
    (known_shape("qwen2.5-1.5b"), 512, W1, "logprobs", False, 3.57, 1.09),
    (known_shape("qwen2.5-1.5b"), 512, W1, "update", False, 10.7, 1.09),
    (known_shape("qwen2.5-1.5b"), 512, W1, "update", True, 8.44, 1.06),
    (known_shape("smollm2-135m"), 1024, W3, "generate", False, 3.26, 0.97),
    (known_shape("smollm2-135m"), 1024, W3, "logprobs", False, 0.42, 0.94),
    (known_shape("smollm2-135m"), 1024, W3, "update", False, 1.30, 0.88),
    (known_shape("smollm2-135m"), 1024, W3, "update", True, 0.72, 0.98),
]


@pytest.mark.parametrize(
    ("shape", "sequences", "work", "kind", "compiled", "measured", "ratio"), MEASURED
)
def test_a_phase_is_predicted_within_a_quarter(
    shape, sequences, work, kind, compiled, measured, ratio
):
    machine = target("1xH200", compiled=compiled, **work)
    predicted = seconds(task(kind, sequences), shape, Layout(), range(1), machine).seconds

    assert round(predicted / measured, 2) == ratio
    assert 0.75 < ratio < 1.25


def test_whole_steps_are_predicted_within_an_eighth():
    for name, steps, work, sequences in (
        ("qwen2.5-1.5b", 22.1, W1, 512),
        ("smollm2-135m", 5.13, W3, 1024),
    ):
        machine, shape = target("1xH200", **work), known_shape(name)
        predicted = sum(
            seconds(task(kind, sequences), shape, Layout(), range(1), machine).seconds
            for kind in ("generate", "logprobs", "update")
        )

        assert predicted == pytest.approx(steps, rel=1 / 8)
