"""The layers of a model: what is gathered, and run again, as one."""

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a transformers model, which knows the names of their classes."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def checkpoint_layers(model: nn.Module) -> None:
    """Let layers keep their input only, and run forward again before their backward.

    Nothing is random in them, since dropout is off.

    Source: Chen et al. 2016, arXiv:1604.06174.
    """
    for layer in layers_of(model):
        layer.forward = partial(
            checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
        )
