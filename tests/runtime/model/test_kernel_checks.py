import warnings

import pytest
import torch
from inline_snapshot import snapshot
from transformers import AttentionInterface

from flowrl.errors import EngineError
from flowrl.runtime.model.kernel_checks import Asked, asked_by, flaw, keeps_rows_apart
from flowrl.runtime.model.kernels import NAMES, attend, plain, register
from flowrl.runtime.model.models import ModelSpec, load_model
from tests.runtime.families import FAMILIES, model_of

GPU, CPU = torch.device("cuda"), torch.device("cpu")
GROUPED = Asked(4, 2, 16, window=True, softcap=False)


def test_a_model_is_asked_what_it_asks_of_its_attention():
    asked = asked_by(model_of(FAMILIES["gemma2"]()))

    full, sliding = (Asked(4, 2, 8, window, softcap=True) for window in (False, True))
    assert asked == {full, sliding}
    assert asked_by(model_of(FAMILIES["gpt_neox"]())) == {Asked(4, 4, 8, False, False)}


def test_a_model_that_is_asked_attends_as_before():
    model = model_of(FAMILIES["qwen2"]())

    asked_by(model)

    assert model.config._attn_implementation == "sdpa"


def test_a_model_with_an_attention_of_its_own_is_told(model_folder):
    model = load_model(ModelSpec(model_folder("bloom")))

    with pytest.raises(EngineError) as error:
        asked_by(model)

    assert str(error.value) == snapshot(
        "transformers has no packed attention for a BloomForCausalLM"
    )


def test_a_model_that_adds_to_its_attention_is_told():
    model = model_of(FAMILIES["qwen2"]())
    attention = model.model.layers[0].self_attn
    attention.register_forward_hook(  # as a module does that has more than one way to attend
        lambda module, _, out: (
            (2 * out[0], *out[1:]) if module.config._attn_implementation == "sdpa" else out
        )
    )

    with pytest.raises(EngineError) as error:
        asked_by(model)

    assert str(error.value) == snapshot("a Qwen2ForCausalLM computes attention in a way of its own")


def test_starts_keep_rows_apart_where_transformers_has_no_mask(model_folder):
    model = load_model(ModelSpec(model_folder("opt")))

    assert not keeps_rows_apart(model)
    assert asked_by(model) == {Asked(2, 2, 8, window=False, softcap=False)}


def planted(fault):
    """Let transformers call a kernel with a fault `plain`."""

    def run(q, k, v, starts, longest, scale, window, softcap):
        made = plain(
            q, k, v, starts, longest, scale, None if fault == "window" else window, softcap
        )
        return made + (q - q.detach()) if fault == "gradient" else made

    AttentionInterface.register(NAMES["plain"], lambda *args, **given: attend(run, *args, **given))


@pytest.mark.parametrize(
    ("fault", "told"),
    [("", ""), ("window", "its output is off by"), ("gradient", "its gradient of q is off by")],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_that_is_off_is_told(fault, told, dtype):
    planted(fault)

    found = flaw.__wrapped__("plain", GROUPED, CPU, dtype)
    register("plain")

    assert found.startswith(told)
    assert bool(found) == bool(fault)


def test_a_kernel_that_fails_is_told():
    register("varlen")

    found = flaw.__wrapped__("varlen", GROUPED, CPU, torch.float32)

    assert "_flash_attention_forward" in found


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "asked", [GROUPED, Asked(14, 2, 64, False, False), Asked(9, 3, 128, False, False)]
)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("varlen", torch.bfloat16), ("flex", torch.bfloat16), ("flex", torch.float32)],
)
def test_kernels_of_torch_are_right_on_this_gpu(name, dtype, asked):
    register(name)

    with warnings.catch_warnings(action="ignore"):  # torch's own, of what compiles flex
        found = flaw(name, asked, GPU, dtype)

    assert found == ""
