"""The layers of a model: what is gathered, and run again, as one."""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

from flowrl.errors import EngineError

checkpointed = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a transformers model, which knows the names of their classes."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    classes = {module: type(module).__mro__ for module in model.modules()}  # FSDP2 derives its own
    return [m for m, its in classes.items() if names.intersection(c.__name__ for c in its)]


def compile_layers(model: nn.Module, role: str) -> None:
    """Compile the forward of each layer, for any number of tokens; layers of a class share it.

    Hooks stay outside, such as those that gather weights. A copy of the model is compiled too.

    Args:
        model: of transformers.
        role: its name in the program, for messages.

    Raises:
        EngineError: transformers names no layers in it.
    """
    layers = layers_of(model)
    if not layers:
        raise EngineError(
            f"{role}: transformers names no layers in a {type(model).__name__} to compile",
            hint="leave `compile` out",
        )
    kinds: dict[Any, Any] = {
        kind: torch.compile(kind.forward, dynamic=True)  # type: ignore[attr-defined]
        for kind in {*map(type, layers)}
    }
    for layer in layers:
        layer.forward = partial(kinds[type(layer)], layer)


def checkpoint_layers(model: nn.Module, offload: bool = False) -> None:
    """Let layers keep their input only, and run forward again before their backward.

    Nothing is random in them, since dropout is off.

    Args:
        model: of transformers.
        offload: the inputs are in host memory meanwhile.

    Source: Chen et al. 2016, arXiv:1604.06174.
    """
    run = _offloaded if offload else checkpointed
    for layer in layers_of(model):
        layer.forward = partial(run, layer.forward)


def _offloaded(*args: Any, **kwargs: Any) -> Any:
    """Checkpoint a call; what is saved of it, its arguments, is in host memory meanwhile."""
    with save_on_cpu(pin_memory=True):
        return checkpointed(*args, **kwargs)
