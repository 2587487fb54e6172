"""Whether a kernel is right: for what a model asks of its attention, and in its numbers, here."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask
from transformers import AttentionInterface

from flowrl.errors import EngineError
from flowrl.functional.packing import Packed, pack, packed_attention
from flowrl.functional.ragged import Ragged
from flowrl.runtime.model.kernels import NAMES, attend, plain, row_starts

HALF = {torch.float16, torch.bfloat16}


@attrs.frozen
class Asked:
    """What a layer asks of its attention: heads, their channels, and whether it has these."""

    heads: int
    key_heads: int
    channels: int
    window: bool
    softcap: bool


def asked_by(model: Any) -> set[Asked]:
    """Return what a model's layers ask of their attention.

    Raises:
        EngineError: the model doesn't attend by what it is given, or asks for more.
    """
    kind, own, found = type(model).__name__, model.config._attn_implementation, set()

    def note(module: nn.Module, q: Tensor, k: Tensor, *rest: Any, **given: Any) -> Any:
        extras = (given.get(name) is not None for name in ("sliding_window", "softcap"))
        found.add(Asked(q.shape[1], k.shape[1], q.shape[3], *extras))
        return attend(plain, module, q, k, *rest, **given)

    if not (model._supports_flash_attn and model._can_set_attn_implementation()):
        raise EngineError(f"transformers has no packed attention for a {kind}")
    expected = states(model)
    AttentionInterface.register(NAMES["plain"], note)
    model.set_attn_implementation(NAMES["plain"])
    try:
        got = packed_states(model)
    except TypeError as error:  # an argument that this model doesn't know
        raise EngineError(f"a {kind} isn't told where rows start: {error}") from error
    finally:
        model.set_attn_implementation(own)
    if not (found and close(model, got, expected)):
        raise EngineError(f"a {kind} computes attention in a way of its own")
    return found


def keeps_rows_apart(model: nn.Module) -> bool:
    """Whether rows on one line do not see each other: of two, each has its states as if alone.

    Models that do not place tokens by position ids, as Bloom's linear biases, are not masked.
    """
    return close(model, packed_states(model), states(model))


def states(model: nn.Module) -> Tensor:
    """Return f[row, token, hidden], the last states of a short row."""
    return _run(model, torch.arange(3)[None])


def packed_states(model: nn.Module) -> Tensor:
    """Return f[row, token, hidden], the last states of the same row, said twice on one line."""
    twice = pack(Ragged.of_rows([[0, 1, 2]] * 2, torch.int64))
    starts = row_starts(model, twice, next(model.parameters()).device)
    return _run(model, twice.input_ids[None], **starts).view(2, 3, -1)


def _run(model: nn.Module, said: Tensor, **starts: Any) -> Tensor:
    """Return the last states of tokens that are their own positions; mixed weights by autocast."""
    device = next(model.parameters()).device
    ids, mixed = said.to(device), torch.bfloat16 in _dtypes(model)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=mixed):
        out = model.base_model(input_ids=ids, position_ids=ids, use_cache=False, **starts)  # type: ignore[operator]
    found: Tensor = out.last_hidden_state
    return found


def _dtypes(model: nn.Module) -> set[torch.dtype]:
    return {parameter.dtype for parameter in model.parameters()}


def close(model: nn.Module, got: Tensor, expected: Tensor) -> bool:
    """Whether a model's states are the same, to what its arithmetic rounds."""
    return share_off(got, expected.expand_as(got)) <= most_off(_dtypes(model))


@cache
@torch.enable_grad()
def flaw(name: str, asked: Asked, device: torch.device, dtype: torch.dtype) -> str:
    """Return what is wrong with a kernel here: with its numbers, forward or backward; or nothing.

    Args:
        name: of the kernel.
        asked: what a layer asks of it.
        device: where.
        dtype: in which.
    """
    window, softcap = 16 if asked.window else None, 2.0 if asked.softcap else None
    rows = pack(Ragged.of_rows([[0] * length for length in (40, 1, 87)], torch.int64))
    draw = torch.Generator().manual_seed(0)
    heads = (asked.heads, asked.key_heads, asked.key_heads)
    shapes = [(1, of, len(rows.input_ids), asked.channels) for of in heads]
    qkv = [torch.randn(shape, generator=draw).to(device, dtype) for shape in shapes]
    q, k, v = exact = [x.float().requires_grad_() for x in qkv]
    starts = rows.cu_seqlens.to(device)
    out = packed_attention(q, k, v, starts, window=window, softcap=softcap).transpose(1, 2)
    wanted = [out, *torch.autograd.grad(out.square().sum(), exact)]
    try:
        made, _ = run_alone(name, [x.requires_grad_() for x in qkv], rows, window, softcap)
        got = [made, *torch.autograd.grad(made.float().square().sum(), qkv)]
    except Exception as error:  # whatever a kernel and its compiler raise
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return next(off(got, wanted, most_off({dtype})), "")


def run_alone(
    name: str, qkv: list[Tensor], rows: Packed, window: int | None, softcap: float | None
) -> tuple[Tensor, None]:
    """Run an attention as transformers would, on q, k, v f[1, head, token, channel]."""
    device, length = qkv[0].device, len(rows.input_ids)
    starts, mask = rows.cu_seqlens.to(device), None
    if name == "flex":
        row = torch.searchsorted(starts.long(), torch.arange(length, device=device), right=True)

        def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return (row[q] == row[k]) & (q >= k) & (q - k < (window or length))

        mask = create_block_mask(seen, None, None, length, length, device=device)
    return AttentionInterface()[NAMES[name]](  # type: ignore[no-any-return]
        nn.Module().eval(),
        *qkv,
        mask,
        scaling=qkv[0].shape[-1] ** -0.5,
        sliding_window=window,
        softcap=softcap,
        cu_seq_lens_q=starts,
        max_length_q=rows.max_seqlen,
    )


def off(got: list[Tensor], wanted: list[Tensor], limit: float) -> Iterator[str]:
    """Yield what is off by more than `limit`, as a share of its norm."""
    whats = ("output", "gradient of q", "gradient of k", "gradient of v")
    for what, one, other in zip(whats, got, wanted, strict=True):
        if not (share := share_off(one, other)) <= limit:
            yield f"its {what} is off by {share:.2g} of its norm"


def most_off(dtypes: set[torch.dtype]) -> float:
    """Return how far what is computed in these may be off, as a share of its norm."""
    return 0.03 if dtypes & HALF else 2e-3


def share_off(got: Tensor, expected: Tensor) -> float:
    """Return how far a tensor is off, as a share of its norm."""
    exact = expected.double()
    return float(((got.double() - exact).norm() / exact.norm()).item())
