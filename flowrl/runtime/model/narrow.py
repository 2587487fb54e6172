"""Weights of a model that computes in bfloat16, as narrow as they may be held."""

from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from flowrl.runtime.model.language import full_precision


def narrow_linear(model: nn.Module) -> None:
    """Hold in bfloat16 what linear layers have: autocast multiplies in no other type.

    So numbers stay those of float32 weights, to the bit. All else stays as wide as it is, for it
    is read as it is: norms, tables (one that is the head too) and, as transformers runs them,
    experts.

    Args:
        model: of transformers, with float32 weights; it is run under autocast and never trained.
    """
    others = (module for module in model.modules() if not is_linear(module))
    wide = {id(p) for module in others for p in module.parameters(recurse=False)}
    for module in filter(is_linear, model.modules()):
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in wide:
                parameter.data = parameter.data.bfloat16()


def is_linear(module: nn.Module) -> bool:
    """Whether a module's weights are multiplied, and nothing else is done with them."""
    return isinstance(module, nn.Linear | Conv1D)


def widen(model: Any) -> None:
    """Let a base in bfloat16 give, under autocast, the numbers of a float32 copy of it, to the bit.

    The copy has the rounded weights: a folder saved in float32 was rounded when it was loaded.
    Vectors, of norms and biases, become float32, and so does what the embedding returns: layers
    then add to float32. Matrices are multiplied in bfloat16 in either case.
    """
    for parameter in model.parameters():
        if parameter.dim() < 2:
            parameter.data = full_precision(parameter.data)
    model.get_input_embeddings().register_forward_hook(lambda _, __, out: full_precision(out))
