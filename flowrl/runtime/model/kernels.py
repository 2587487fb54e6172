"""Attention of packed rows, as transformers calls it: by kernels that read where rows start.

A kernel takes q f[token, head, channel], k and v f[token, key_head, channel], starts i32[row + 1],
the tokens of the longest row, and scale, window and softcap as `packed_attention` does; it returns
f[token, head, channel].
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask, flex_attention_mask

from flowrl.errors import EngineError
from flowrl.functional.packing import Packed, packed_attention
from flowrl.runtime.model.language import full_precision

Kernel = Callable[..., Tensor]

NAMES = {
    "flash_attn": "packed_fa",
    "varlen": "packed_varlen",
    "flex": "packed_flex",
    "plain": "packed_plain",
    "capped": "capped",
}
"""What ours are called in transformers, which looks for packages by names such as `flash`."""

BY_STARTS = {NAMES["flash_attn"], NAMES["varlen"], NAMES["plain"]}
"""Those that read where rows start; the others have masks, which transformers makes."""

UNKNOWN = ("s_aux", "position_bias")
"""What some models ask of their attention, and no kernel here knows."""


def register(name: str) -> str:
    """Make an attention known to transformers; return what it is called there.

    Raises:
        EngineError: its package isn't here.
    """
    if name in MASKED:
        run, mask = MASKED[name]
        AttentionMaskInterface.register(NAMES[name], mask)
    else:
        run = partial(attend, load_kernel(name))
    AttentionInterface.register(NAMES[name], run)
    return NAMES[name]


def row_starts(model: nn.Module, packed: Packed, device: torch.device) -> dict[str, Any]:
    """Return what a model has to hand to its attention, if that reads where rows start."""
    config: Any = model.config
    if config._attn_implementation not in BY_STARTS:
        return {}
    starts, longest = packed.cu_seqlens.to(device), packed.max_seqlen
    return {
        "cu_seq_lens_q": starts,
        "cu_seq_lens_k": starts,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def load_kernel(name: str) -> Kernel:
    """Return a kernel.

    Raises:
        EngineError: its package isn't here.
    """
    if name == "plain":
        return plain
    package, adapt = PACKAGES[name]
    try:
        return adapt(import_module(package))
    except (ImportError, AttributeError) as error:
        raise EngineError(f"`{package}` can't be imported: {error}") from error


def attend(
    kernel: Kernel,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int = 0,
    **given: Any,
) -> tuple[Tensor, None]:
    """Run a kernel.

    Args:
        kernel: as above.
        module: the attention that calls.
        query: f[1, head, token, channel].
        key: f[1, key_head, token, channel].
        value: f[1, key_head, token, channel].
        attention_mask: none.
        scaling: of scores.
        sliding_window: newest tokens that a token sees.
        softcap: of scores.
        cu_seq_lens_q: i32[row + 1], where rows start, and the end.
        max_length_q: tokens of the longest row.
        given: what else a model asks for.

    Returns:
        f[1, token, head, channel], and no weights.

    Raises:
        EngineError: the model asks for what kernels don't know, or doesn't say where rows start.
    """
    unknown = [name for name in UNKNOWN if given.get(name) is not None]
    if not given.get("is_causal", getattr(module, "is_causal", True)):
        unknown.append("is_causal = False")
    if unknown:
        raise EngineError(f"a {type(module).__name__} asks for `{unknown[0]}`")
    if cu_seq_lens_q is None:
        raise EngineError(f"a {type(module).__name__} isn't told where rows start")
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in as_computed(query, key, value))
    made = kernel(q, k, v, cu_seq_lens_q, max_length_q, scaling, sliding_window, softcap)
    return made[None], None


def flex(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    **given: Any,
) -> tuple[Tensor, None]:
    """Run transformers' flex attention, whose arguments have to be of one dtype."""
    qkv = as_computed(query, key, value)
    made, _ = flex_attention_forward(module, *qkv, attention_mask, **given)
    return made, None


def capped(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    softcap: float,
    **given: Any,
) -> tuple[Tensor, None]:
    """Attend with capped scores, as `packed_attention` caps them, in full precision.

    Args:
        module: the attention that calls.
        query: f[line, head, token, channel].
        key: f[line, key_head, seen, channel].
        value: f[line, key_head, seen, channel].
        attention_mask: f[line, 1, token, seen], added to the scores; none if all is seen.
        scaling: of scores.
        softcap: of scores.
        given: what else a model asks for; masks know its windows.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    scores = softcap * torch.tanh(full_precision(query @ key.mT) * (scaling / softcap))
    if attention_mask is not None:
        scores = scores + attention_mask
    return (scores.softmax(-1).to(value.dtype) @ value).transpose(1, 2).contiguous(), None


def as_computed(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in the dtype of autocast, which no kernel knows; else of the first."""
    device = tensors[0].device.type
    own = tensors[0].dtype
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else own
    return [tensor.to(dtype) for tensor in tensors]


def _flash_attn(package: Any) -> Kernel:
    function = package.flash_attn_varlen_func

    def run(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, *how: Any) -> Tensor:
        scale, window, softcap = how
        made: Tensor = function(
            *(q, k, v, starts, starts, longest, longest),
            softmax_scale=scale,
            causal=True,
            window_size=_span(window),
            softcap=softcap or 0.0,
        )
        return made

    return run


def _varlen(package: Any) -> Kernel:
    function = package.varlen_attn
    grouped = {"enable_gqa": True} if "enable_gqa" in signature(function).parameters else {}

    def run(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, *how: Any) -> Tensor:
        scale, window, softcap = how
        if softcap is not None:
            raise EngineError("`varlen_attn` has no softcap")
        made: Tensor = function(
            *(q, k, v, starts, starts, longest, longest),
            scale=scale,
            window_size=_span(window),
            **grouped,
        )
        return made

    return run


def plain(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, *how: Any) -> Tensor:
    """Return what a kernel has to, slowly."""
    scale, window, softcap = how
    heads = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    made = packed_attention(*heads, starts, scale=scale, window=window, softcap=softcap)
    return made.transpose(0, 1)


def _span(window: int | None) -> tuple[int, int]:
    """Return how many tokens before and behind itself a token sees; -1 is all."""
    return (-1 if window is None else window - 1, 0)


MASKED = {"flex": (flex, flex_attention_mask), "capped": (capped, eager_mask)}
"""Attentions by masks, and what makes these."""

PACKAGES: Mapping[str, tuple[str, Callable[[Any], Kernel]]] = {
    "flash_attn": ("flash_attn", _flash_attn),
    "varlen": ("torch.nn.attention.varlen", _varlen),
}
"""Where kernels come from, and what makes them take their arguments as above."""
