"""vLLM's own tensors, by transformers' names: what a trainer may share with it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flowrl.errors import EngineError
from flowrl.runtime.known_engines import FACTS

KNOWN = FACTS["vllm"]


def own_tensors(
    model: Any, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Return views of vLLM's tensors that are the parameters of a transformers model.

    Query, key and value, and gate and up, are rows of one tensor of vLLM's; of one that is padded,
    a parameter is the first rows.

    Args:
        model: vLLM's.
        shapes: of transformers' parameters, by name; tied ones once.
        dtype: that they are to have.

    Raises:
        EngineError: a parameter is no contiguous part of a tensor in this type: vLLM has it packed
            for a CPU, quantised, divided, in another order or under another name. Or vLLM has made
            others of them, such as those of latent attention, which would stay as they are.
    """
    found, known = readable(model, shapes, dtype), list(_views(model, shapes))
    views = {whole: view for _, whole, view in known}
    for name, shape in shapes.items():
        if why := KNOWN.reordered(name):
            raise EngineError(why)
        if name not in found:
            view = views.get(name)
            got = "none" if view is None else f"{view.dtype} {list(view.shape)}"
            raise EngineError(f"vLLM has `{name}`, {dtype} {list(shape)}, as {got}")
    read = {own for own, _, _ in known}
    for own, _ in model.named_parameters():
        if own not in read:
            raise EngineError(f"vLLM has made `{own}` of the model's weights, and computes with it")
    return {name: found[name] for name in shapes}


def readable(
    model: Any, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Return as `own_tensors` does, without those that vLLM has in another form."""
    return {
        name: view
        for _, name, view in _views(model, shapes)
        if (tuple(view.shape), view.dtype) == (shapes[name], dtype) and not KNOWN.reordered(name)
    }


def _views(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, str, Tensor]]:
    """Yield what may be a parameter, with vLLM's name for all of it and transformers' for this."""
    joined: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    for name, tensor in model.named_parameters():
        module, _, leaf = name.rpartition(".")
        parent, _, last = module.rpartition(".")
        at = 0
        for part in joined.get(last, [last]):
            whole = ".".join(filter(None, (parent, part, leaf)))
            if whole in shapes and tensor.dim() == len(shapes[whole]):
                rows = shapes[whole][0]
                yield name, whole, tensor.data[at : at + rows]
                at += rows


def repack_tied(model: Any) -> None:
    """Let a head that is tied to the embedding have the embedding's new weight.

    On a CPU it computes with a copy of its own, packed for the CPU's matrix units, and
    a reload renews that of the embedding alone.
    """
    holders: dict[int, list[Any]] = {}
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and hasattr(module, "quant_method"):
            holders.setdefault(id(weight), []).append(module)
    for tied in holders.values():
        for module in tied[1:]:
            module.quant_method.process_weights_after_loading(module)


def unpack_experts(model: Any) -> None:
    """Let experts that are packed for a CPU be packed anew with the weights that come next.

    vLLM packs them as it makes their kernel, and makes that once.
    """
    for module in model.modules():
        method: Any = getattr(module, "quant_method", None)
        if getattr(method, "moe_kernel", None) and next(module.parameters()).is_cpu:
            method.moe_kernel = None


@torch.inference_mode()
def clear_cache(worker: Any) -> None:
    """Let a worker's key-value cache be 0.

    Of a page that isn't full, attention takes the rest times 0: what broken weights have left
    there, if it is not a number, would break what good ones sample.
    """
    for part in pytree.tree_leaves(worker.model_runner.kv_caches):
        part.zero_()
