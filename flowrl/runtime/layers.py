"""The layers of a model: what is gathered, and run again, as one."""

from functools import partial
from typing import Any

from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

checkpointed = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a transformers model, which knows the names of their classes."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    classes = {module: type(module).__mro__ for module in model.modules()}  # FSDP2 derives its own
    return [m for m, its in classes.items() if names.intersection(c.__name__ for c in its)]


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
