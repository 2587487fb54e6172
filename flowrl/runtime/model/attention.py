"""The attention that a model is run with: the fastest that is here and right for it."""

import logging
from typing import Any, Literal

import torch
from torch import nn

from flowrl.errors import EngineError
from flowrl.runtime.model.kernel_checks import HALF, asked_by, flaw, keeps_rows_apart
from flowrl.runtime.model.kernels import NAMES, register
from flowrl.runtime.model.models import DTYPES, ModelSpec

Attention = Literal["auto", "flash_attn", "varlen", "flex", "sdpa"]
Packing = Literal["packed", "padded"]

FASTEST = ("flash_attn", "varlen", "flex")
"""Of packed rows, on a GPU; transformers' own, with masks of each token with each, comes last."""

SOURCES = {"flash_attn": "flash-attn", "varlen": "torch", "flex": "torch"}

log = logging.getLogger(__name__)


def choose_attention(
    model: nn.Module,
    spec: ModelSpec,
    wanted: Attention = "auto",
    packing: Packing | None = None,
    role: str = "model",
) -> Packing:
    """Set a model's attention, say in the log which it is, and return how rows shall lie.

    Args:
        model: of transformers, wherever it is now.
        spec: says where it will be, and in which dtype it computes.
        wanted: "auto" takes the fastest.
        packing: by default "padded" on a CPU, unless an attention of packed rows is wanted, and
            "packed" elsewhere if the model keeps packed rows apart.
        role: the model's name in the program, for messages.

    Raises:
        EngineError: what is wanted isn't here, or isn't right for this model; or "packed" was
            asked of a model that lets packed rows see each other.
    """
    on_cpu = torch.device(spec.device).type == "cpu"
    if packing is None and on_cpu and wanted not in FASTEST:
        packing = "padded"
    tried = (wanted,) if wanted in FASTEST else FASTEST if wanted == "auto" and not on_cpu else ()
    if packing == "padded" and wanted in FASTEST:
        raise EngineError(
            f'{role}: attention = "{wanted}" needs packed rows; packing is "padded"',
            hint='set packing = "packed", or leave attention out',
        )
    refused = {}
    for name in tried if packing != "padded" else ():
        try:
            attend_by(name, model, spec)
        except EngineError as error:
            refused[name] = error.problem
        else:
            return _said(role, f"{name} ({SOURCES[name]})", "packed", refused)
    return _own(model, wanted, packing, role, refused)


def _own(
    model: Any, wanted: Attention, packing: Packing | None, role: str, refused: dict[str, str]
) -> Packing:
    """Leave a model the attention that transformers gave it."""
    own = model.config._attn_implementation
    if wanted not in ("auto", own):
        why = refused.get(wanted, f"a {type(model).__name__} is run by `{own}`")
        raise EngineError(
            f'{role}: attention = "{wanted}" is not available: {why}',
            hint='attention = "auto" takes the fastest that is available',
        )
    apart = packing != "padded" and keeps_rows_apart(model)
    if packing == "packed" and not apart:
        raise EngineError(
            f"{role}: a {type(model).__name__} lets packed rows see each other",
            hint='leave packing out, or set packing = "padded"',
        )
    where = "flowrl" if own == NAMES["capped"] else "transformers"
    return _said(role, f"{own} ({where})", "packed" if apart else "padded", refused)


def _said(role: str, name: str, packing: Packing, refused: dict[str, str]) -> Packing:
    others = "".join(f"; not {other}: {why}" for other, why in refused.items())
    log.info("%s: attention: %s, %s rows%s", role, name, packing, others)
    return packing


def attend_by(name: str, model: Any, spec: ModelSpec) -> None:
    """Let a model attend by a kernel.

    Raises:
        EngineError: the kernel isn't here, or isn't right for this model.
    """
    device, dtype = torch.device(spec.device), DTYPES[spec.dtype]
    if device.type == "cpu":
        raise EngineError(f"{name} runs on GPUs only")
    if name != "flex" and dtype not in HALF:
        raise EngineError(f"{name} computes in half precision, not in {spec.dtype}")
    ours = register(name)
    for asked in asked_by(model):
        if why := flaw(name, asked, device, dtype):
            raise EngineError(why)
    model.set_attn_implementation(ours)
