"""A model's weights by name: those that are trained, saved and sent."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from flowrl.errors import EngineError
from flowrl.runtime.model.lora import has_adapter, trained_names


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and saved buffers by name, aliased; tied weights stand once.

    Of a model with an adapter, only what is trained.
    """
    once = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    if has_adapter(model):
        once = trained_names(model)
    return {name: tensor for name, tensor in model.state_dict().items() if name in once}


def parameters_of(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters among a model's weights, in order."""
    names = weights_of(model).keys()
    return [parameter for name, parameter in model.named_parameters() if name in names]


Shapes = Mapping[str, torch.Size]


def shapes_of(model: nn.Module) -> Shapes:
    """Return the shapes of a model's weights by name; tied weights stand once."""
    return {name: tensor.shape for name, tensor in weights_of(model).items()}


def check_weights(model: nn.Module, weights: Mapping[str, Tensor], shapes: Shapes) -> None:
    """Refuse weights that are not this model's, whose whole weights have these shapes.

    Raises:
        EngineError: a tensor is unknown, missing or of another shape.
    """
    for name in sorted(shapes.keys() ^ weights.keys()):
        what = "has no tensor" if name in weights else "was not given its tensor"
        raise EngineError(
            f"{type(model).__name__} {what} `{name}`", hint="load weights of the same model"
        )
    for name, tensor in weights.items():
        if tensor.shape != shapes[name]:
            raise EngineError(
                f"`{name}` must be of shape {list(shapes[name])}; got {list(tensor.shape)}",
                hint="load weights of the same model",
            )
