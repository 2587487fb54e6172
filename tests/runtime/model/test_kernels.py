import sys
from functools import partial
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from inline_snapshot import snapshot
from torch.nn.attention import varlen
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close
from transformers.integrations.flex_attention import WrappedFlexAttention
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs

from flowrl.errors import EngineError
from flowrl.functional.packing import pack, packed_attention
from flowrl.functional.ragged import Ragged
from flowrl.runtime.model.forward import forward_outputs
from flowrl.runtime.model.kernels import attend, load_kernel, plain, register, row_starts
from tests.runtime.families import FAMILIES, model_of

LENGTHS = (3, 1, 7)
STARTS = torch.tensor([0, *LENGTHS]).cumsum(0).int()


@pytest.fixture
def qkv():
    """Return random q, k, v f[token, head, channel]: four heads, of which two share a key."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(sum(LENGTHS), count, 16) for count in (4, 2, 2)]
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_told_by_their_starts_are_rows_alone_forward_and_backward(family, batch):
    found = []
    for packing in ("padded", "packed"):
        model = model_of(FAMILIES[family]()).double().requires_grad_(True)
        capped = family == "gemma2"
        alone = register("capped") if capped else "sdpa"
        model.set_attn_implementation(alone if packing == "padded" else register("plain"))
        out = forward_outputs(model, batch, ["logprobs"], 1.0, packing)["logprobs"]
        out.square().mean().backward()
        found.append((out.detach(), {name: p.grad for name, p in model.named_parameters()}))

    assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)  # Gemma's norms are float32 always


@pytest.mark.parametrize(
    ("name", "told"), [("varlen", True), ("plain", True), ("flex", False), ("capped", False)]
)
def test_those_without_masks_are_told_where_rows_start(name, told):
    model = model_of(FAMILIES["qwen2"]())
    model.set_attn_implementation(register(name))
    packed = pack(Ragged.of_rows([[0] * length for length in LENGTHS], torch.int64))

    starts = row_starts(model, packed, torch.device("cpu"))

    assert bool(starts) == told
    if told:
        assert starts.keys() <= FlashAttentionKwargs.__annotations__.keys()
        assert starts["cu_seq_lens_q"].tolist() == STARTS.tolist()
        assert starts["max_length_q"] == max(LENGTHS)


@pytest.mark.filterwarnings("ignore")  # torch warns itself as it compiles
def test_flex_reads_windows_caps_and_rows_from_its_masks_in_any_dtype(monkeypatch, batch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    monkeypatch.setattr(WrappedFlexAttention, "_instance", None)
    model = model_of(FAMILIES["gemma2"]())
    found = []
    for name, mixed in (("plain", False), ("flex", False), ("flex", True)):
        model.set_attn_implementation(register(name))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            found.append(forward_outputs(model, batch, ["logprobs"], 1.0, "packed")["logprobs"])

    assert_close(found[1], found[0], rtol=0, atol=1e-4)
    assert_close(found[2], found[0], rtol=0.1, atol=0.1)


def by_its_documentation(q, k, v, starts, starts_of_k, longest, longest_k, **how):
    """Return what a library says of its kernel, which is for GPUs; windows are (before, behind)."""
    assert torch.equal(starts, starts_of_k)
    assert longest == longest_k == max(LENGTHS)
    assert how.pop("causal", True)
    assert how.pop("enable_gqa", True)
    before, behind = how.pop("window_size")
    assert behind == 0
    scale, softcap = how.pop("scale", None) or how.pop("softmax_scale"), how.pop("softcap", 0)
    assert not how
    heads = (x.transpose(0, 1) for x in (q, k, v))
    window = None if before == -1 else before + 1
    made = packed_attention(*heads, starts, scale=scale, window=window, softcap=softcap or None)
    return made.transpose(0, 1)


def kernel_of(name):
    """Return a kernel whose library isn't here, or not for CPUs, but is called as it wants."""
    if name == "flash_attn":
        package = SimpleNamespace(flash_attn_varlen_func=by_its_documentation)
        with mock.patch.dict(sys.modules, {name: package}):
            return load_kernel(name)
    called = mock.create_autospec(varlen.varlen_attn, side_effect=by_its_documentation)
    with mock.patch.object(varlen, "varlen_attn", called):
        return load_kernel(name)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("name", ["flash_attn", "varlen", "plain"])
def test_a_kernel_sees_what_sdpa_sees_of_each_row(name, window, qkv):
    kernel = plain if name == "plain" else kernel_of(name)

    made = kernel(*qkv, STARTS, max(LENGTHS), 0.3, window, None)

    alone = []
    for q, k, v in zip(*(x.transpose(0, 1).split(LENGTHS, 1) for x in qkv), strict=True):
        seen = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
        seen &= torch.ones_like(seen).triu(1 - (window or q.shape[1]))
        row = (x[None] for x in (q, k, v))
        out = scaled_dot_product_attention(*row, attn_mask=seen, scale=0.3, enable_gqa=True)
        alone.append(out[0].transpose(0, 1))
    assert_close(made, torch.cat(alone))


def test_scores_are_capped_by_flash_attn_and_not_by_torch(qkv):
    how = (STARTS, max(LENGTHS), 0.3, None, 0.5)

    assert_close(kernel_of("flash_attn")(*qkv, *how), plain(*qkv, *how))
    with pytest.raises(EngineError) as error:
        kernel_of("varlen")(*qkv, *how)

    assert str(error.value) == snapshot("`varlen_attn` has no softcap")


def test_a_kernel_computes_in_the_dtype_of_autocast(qkv):
    heads = [x.float().transpose(0, 1)[None] for x in qkv]
    told = {"cu_seq_lens_q": STARTS, "max_length_q": max(LENGTHS)}

    with torch.autocast("cpu", torch.bfloat16):
        made, _ = attend(plain, torch.nn.Module(), *heads, None, **told)

    assert made.dtype == torch.bfloat16
    assert made.shape == (1, sum(LENGTHS), 4, 16)
    exact = attend(plain, torch.nn.Module(), *heads, None, **told)[0]
    assert_close(made.float(), exact, rtol=0, atol=0.05)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"s_aux": torch.zeros(4)}, "a Module asks for `s_aux`"),
        ({"is_causal": False}, "a Module asks for `is_causal = False`"),
        ({"cu_seq_lens_q": None}, "a Module isn't told where rows start"),
    ],
)
def test_what_kernels_do_not_know_is_refused(given, told, qkv):
    heads = [x.transpose(0, 1)[None] for x in qkv]

    with pytest.raises(EngineError) as error:
        attend(plain, torch.nn.Module(), *heads, None, **{"cu_seq_lens_q": STARTS} | given)

    assert str(error.value) == told


@pytest.mark.skipif("flash_attn" in sys.modules, reason="flash-attn is here")
def test_a_package_that_is_not_here_is_named():
    with mock.patch.dict(sys.modules, flash_attn=None), pytest.raises(EngineError) as error:
        load_kernel("flash_attn")

    assert str(error.value) == snapshot(
        "`flash_attn` can't be imported: import of flash_attn halted; None in sys.modules"
    )
