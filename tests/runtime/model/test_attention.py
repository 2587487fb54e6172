import logging
from unittest import mock

import attrs
import pytest
import torch
from inline_snapshot import snapshot

from flowrl.errors import EngineError
from flowrl.runtime.model.attention import choose_attention
from flowrl.runtime.model.kernel_checks import Asked
from flowrl.runtime.model.models import ModelSpec, load_model


@pytest.fixture
def choose(model_folder, caplog):
    """Return a function: choose for a tiny model, and tell how rows lie, by what, and the log."""

    def run(architecture, *args, device="cpu", dtype="float32"):
        caplog.clear()
        spec = ModelSpec(model_folder(architecture), dtype=dtype)
        model = load_model(spec, dtype=torch.float32)
        with caplog.at_level(logging.INFO, logger="flowrl"):
            packing = choose_attention(model, attrs.evolve(spec, device=device), *args)
        return packing, model.config._attn_implementation, caplog.messages[0]

    return run


def test_on_a_cpu_rows_are_padded_unless_the_run_says_so(choose):
    assert choose("llama") == snapshot(
        ("padded", "sdpa", "model: attention: sdpa (transformers), padded rows")
    )
    assert choose("llama", "sdpa", "packed") == snapshot(
        ("packed", "sdpa", "model: attention: sdpa (transformers), packed rows")
    )
    assert choose("gemma2", "auto", "packed") == snapshot(
        ("packed", "capped", "model: attention: capped (flowrl), packed rows")
    )
    assert choose("bloom") == snapshot(
        ("padded", "eager", "model: attention: eager (transformers), padded rows")
    )


@pytest.fixture
def flaws():
    """Let kernels be without flaws on a GPU that isn't here, or have those that are set."""
    set_ones = {}
    with mock.patch("flowrl.runtime.model.attention.flaw", lambda name, *_: set_ones.get(name, "")):
        yield set_ones


@pytest.mark.usefixtures("flaws")
def test_on_a_gpu_the_fastest_that_is_here_is_taken(choose):
    assert choose("llama", device="cuda", dtype="bfloat16") == snapshot(
        (
            "packed",
            "packed_varlen",
            "model: attention: varlen (torch), packed rows; not flash_attn: `flash_attn` can't be imported: No module named 'flash_attn'",
        )
    )
    assert choose("llama", device="cuda") == snapshot(
        (
            "packed",
            "packed_flex",
            "model: attention: flex (torch), packed rows; not flash_attn: flash_attn computes in half precision, not in float32; not varlen: varlen computes in half precision, not in float32",
        )
    )
    assert choose("llama", "flex", device="cuda", dtype="bfloat16") == snapshot(
        ("packed", "packed_flex", "model: attention: flex (torch), packed rows")
    )
    assert choose("llama", "auto", "padded", device="cuda") == snapshot(
        ("padded", "sdpa", "model: attention: sdpa (transformers), padded rows")
    )
    assert choose("bloom", device="cuda") == snapshot(
        (
            "padded",
            "eager",
            "model: attention: eager (transformers), padded rows; not flash_attn: flash_attn computes in half precision, not in float32; not varlen: varlen computes in half precision, not in float32; not flex: transformers has no packed attention for a BloomForCausalLM",
        )
    )


def test_a_kernel_with_a_flaw_is_passed_over(choose, flaws):
    flaws |= {"varlen": "its gradient of k is off by 0.5 of its norm", "flex": "Unsupported: x"}

    assert choose("llama", device="cuda", dtype="bfloat16") == snapshot(
        (
            "packed",
            "sdpa",
            "model: attention: sdpa (transformers), packed rows; not flash_attn: `flash_attn` can't be imported: No module named 'flash_attn'; not varlen: its gradient of k is off by 0.5 of its norm; not flex: Unsupported: x",
        )
    )


@pytest.mark.parametrize(
    ("wanted", "packing", "architecture", "told"),
    [
        (
            "varlen",
            None,
            "llama",
            snapshot("""\
model: attention = "varlen" is not available: varlen runs on GPUs only
help: attention = "auto" takes the fastest that is available\
"""),
        ),
        (
            "flex",
            "padded",
            "llama",
            snapshot("""\
model: attention = "flex" needs packed rows; packing is "padded"
help: set packing = "packed", or leave attention out\
"""),
        ),
        (
            "sdpa",
            None,
            "gemma2",
            snapshot("""\
model: attention = "sdpa" is not available: a Gemma2ForCausalLM is run by `capped`
help: attention = "auto" takes the fastest that is available\
"""),
        ),
        (
            "auto",
            "packed",
            "bloom",
            snapshot("""\
model: a BloomForCausalLM lets packed rows see each other
help: leave packing out, or set packing = "padded"\
"""),
        ),
    ],
)
def test_what_is_wanted_and_not_there_is_refused_by_name(
    choose, wanted, packing, architecture, told
):
    with pytest.raises(EngineError) as error:
        choose(architecture, wanted, packing)

    assert str(error.value) == told


@pytest.mark.usefixtures("flaws")
def test_a_kernel_of_half_precision_is_refused_in_float32(choose):
    with pytest.raises(EngineError) as error:
        choose("llama", "varlen", device="cuda")

    assert str(error.value) == snapshot("""\
model: attention = "varlen" is not available: varlen computes in half precision, not in float32
help: attention = "auto" takes the fastest that is available\
""")


def test_every_layer_is_checked(choose):
    with mock.patch("flowrl.runtime.model.attention.flaw", return_value="") as checked:
        choose("gemma2", "flex", device="cuda")

    asked = {call.args[1] for call in checked.call_args_list}
    assert asked == {Asked(2, 1, 8, window, softcap=True) for window in (False, True)}
    assert {call.args[2:] for call in checked.call_args_list} == {
        (torch.device("cuda"), torch.float32)
    }
