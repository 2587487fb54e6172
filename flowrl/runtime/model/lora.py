"""Low-rank adapters of a model that stays as it is, by peft.

Source: Hu et al. 2021, arXiv:2106.09685.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from flowrl.errors import EngineError, nearest
from flowrl.runtime.model.fsdp2 import whole
from flowrl.runtime.model.heads import head_module
from flowrl.runtime.model.language import full_precision
from flowrl.runtime.model.value_head import NAME as VALUE_HEAD
from flowrl.runtime.model.value_head import without_value_head

ADAPTER = "default"
"""What peft calls the only adapter of a model."""


@attrs.frozen
class Lora:
    """Low-rank adapters: to a linear layer W x, `alpha / rank` B A x is added.

    Attributes:
        rank: rows of A and columns of B.
        alpha: the scale, as a multiple of the rank.
        targets: names of the linear layers, or their last parts; "all-linear" for all but heads.
        seed: of A at the start; B starts at zero.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: str | tuple[str, ...] = "all-linear"
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        if self.rank < 1:
            raise EngineError(f"`rank` of an adapter must be at least 1; got {self.rank}")
        if not self.targets:
            raise EngineError(
                f"`targets` of an adapter must name a layer; got {self.targets!r}",
                hint='targets = "all-linear" takes all linear layers but heads',
            )


def add_adapter(model: Any, lora: Lora) -> None:
    """Put adapters beside linear layers, in float32, or float64 if the model is.

    Args:
        model: of transformers, on the CPU.
        lora: which.

    Raises:
        EngineError: peft isn't installed, or the model has no such linear layers.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise EngineError(
            "adapters are made by peft, which is not installed", hint='pip install "flowrl[lora]"'
        ) from error
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=_targets(model, lora),
        fan_in_fan_out=any(isinstance(layer, Conv1D) for layer in model.modules()),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(lora.seed)
        inject_adapter_in_model(config, model, ADAPTER)
    own = trained_names(model)
    for name, parameter in model.named_parameters():
        if name in own:
            parameter.data = full_precision(parameter.data)


def _targets(model: Any, lora: Lora) -> list[str]:
    """Return the last parts of the names of the layers that are to have adapters."""
    heads = [model.get_output_embeddings(), *(model.get_submodule(name) for name in _heads(model))]
    linear = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and not any(module is head for head in heads)
    ]
    known = sorted({name.rpartition(".")[2] for name in linear})
    if lora.targets == "all-linear":
        return known
    asked = [lora.targets] if isinstance(lora.targets, str) else list(lora.targets)
    for target in asked:
        if not any(f".{name}".endswith(f".{target}") for name in linear):
            raise EngineError(
                f"a {type(model).__name__} has no linear layers `{target}` for adapters"
                f"{nearest(target, known)}",
                hint=f'there are {", ".join(known)}; targets = "all-linear" takes all but heads',
            )
    return asked


def _heads(model: Any) -> list[str]:
    """Return the names of the heads of one number, which are trained themselves."""
    if model.get_output_embeddings() is not None:
        return [VALUE_HEAD] if hasattr(model, VALUE_HEAD) else []
    return [name for name, module in model.named_modules() if module is head_module(model)]


def has_adapter(model: nn.Module) -> bool:
    """Whether a model has an adapter."""
    return hasattr(model, "peft_config")


def trained_names(model: nn.Module) -> set[str]:
    """Return the names of what a model with an adapter trains: that, and a head of one number."""
    heads = tuple(f"{name}." for name in _heads(model))
    names = [name for name, _ in model.named_parameters()]
    return {name for name in names if _is_adapter(name) or name.startswith(heads)}


def _is_adapter(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def _adapted(model: nn.Module) -> dict[str, Any]:
    """Return the layers with an adapter by name."""
    from peft.tuners.lora import LoraLayer

    return {name: m for name, m in model.named_modules() if isinstance(m, LoraLayer)}


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """Let a model be its base: without gradients, and to the bit."""
    layers = _adapted(model).values()
    for layer in layers:  # peft's own switch would turn gradients on and off, too
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def copied(model: nn.Module) -> nn.Module:
    """Return a copy of a model; of one with an adapter, both have the same base."""
    kept = trained_names(model) if has_adapter(model) else None
    shared = [p for n, p in model.named_parameters() if kept is not None and n not in kept]
    return deepcopy(model, {id(parameter): parameter for parameter in shared})


def merged(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of the model that base and adapter are together, in full precision.

    Of several ranks, all must ask for them. Tied weights stand once, by their names without the
    adapter.
    """
    layers, saved = _adapted(model), model.state_dict()
    for name in [name for name, _ in (*model.named_parameters(), *model.named_buffers())]:
        if name in saved and not _is_adapter(name):
            tensor, (layer, _, kind) = whole(saved[name]), name.rpartition(".base_layer.")
            added = _delta(layers[layer]) if layer and kind == "weight" else 0
            yield name.replace(".base_layer.", "."), full_precision(tensor) + added


def _delta(layer: Any) -> Tensor:
    """Return what an adapter adds to a weight, as the weight lies."""
    low, high = (whole(each[ADAPTER].weight.detach()) for each in (layer.lora_A, layer.lora_B))
    delta: Tensor = layer.scaling[ADAPTER] * (high @ low)
    return delta.T if layer.fan_in_fan_out else delta


def scales_of(model: nn.Module) -> dict[str, float]:
    """Return by what an adapter's products are multiplied, by the names of its matrices B."""
    layers = _adapted(model) if has_adapter(model) else {}
    return {f"{n}.lora_B.{ADAPTER}.weight": m.scaling[ADAPTER] for n, m in layers.items()}


def save_adapter(model: Any, folder: Path, weights: Mapping[str, Tensor], path: str) -> None:
    """Write the folder of an adapter that peft loads; a value head is none of it.

    Args:
        model: has the adapter.
        folder: made if it does not exist.
        weights: those that are trained.
        path: of the base.
    """
    config = deepcopy(model.peft_config[ADAPTER])
    config.base_model_name_or_path, config.inference_mode = path, True
    if model.get_output_embeddings() is None:
        config.modules_to_save = _heads(model)
    config.save_pretrained(folder)
    save_file(as_peft(without_value_head(weights)), folder / "adapter_model.safetensors")


def as_peft(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by the names that peft saves them by."""
    return {f"base_model.model.{n.replace(f'.{ADAPTER}.', '.')}": x for n, x in weights.items()}
