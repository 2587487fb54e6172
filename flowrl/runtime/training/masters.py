"""Masters: the float32 weights behind a model that computes with narrower ones.

Source: Micikevicius et al. 2018, arXiv:1710.03740, sec. 3.1. The narrow weights may be another
engine's own: then it samples with what is trained, and nothing is sent.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from flowrl.errors import EngineError


class Masters:
    """What an optimizer trains, for a model whose own weights are tensors of somebody else.

    Gradients add up in float32, however narrow those of a microbatch are.

    Args:
        model: its parameters become `views`, with the numbers that they have now.
        views: by the name of each parameter. One that has none, such as a value head, gets a
            tensor of its own of the same type.

    Raises:
        EngineError: a tensor is of another shape than its parameter; nothing has changed.
    """

    def __init__(self, model: nn.Module, views: Mapping[str, Tensor]) -> None:
        check_views(model, views)
        self.parameters = dict(model.named_parameters())
        self.named: dict[str, Tensor] = {}
        """By the name of their parameter."""
        narrow = next(iter(views.values())).dtype
        wide = torch.promote_types(narrow, torch.float32)
        for name, parameter in self.parameters.items():
            self.named[name] = nn.Parameter(parameter.detach().to(wide, copy=True))
            parameter.data = views.get(name, parameter).detach().to(narrow)
            parameter.register_post_accumulate_grad_hook(partial(collect, self.named[name]))
        self.write()

    def write(self) -> None:
        """Write the masters into what the model computes with."""
        with torch.no_grad():
            torch._foreach_copy_([*self.parameters.values()], [*self.named.values()])


def adopt(model: nn.Module, views: Mapping[str, Tensor]) -> None:
    """Let a model's parameters be tensors of the same type, with the numbers that it has now.

    Raises:
        EngineError: a tensor is of another shape than its parameter; nothing has changed.
    """
    check_views(model, views)
    for name, parameter in model.named_parameters():
        if name in views:
            parameter.data = views[name].detach().copy_(parameter.detach())


def check_views(model: nn.Module, views: Mapping[str, Tensor]) -> None:
    """Raise EngineError unless every tensor is of its parameter's shape."""
    shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    for name, view in views.items():
        if list(view.shape) != shapes.get(name):
            raise EngineError(
                f"the tensor that `{name}` would share is of shape {list(view.shape)}; its own is "
                f"of {shapes.get(name, 'none')}"
            )


def collect(master: Tensor, parameter: Tensor) -> None:
    """Add a microbatch's gradient to those that came before."""
    gradient, parameter.grad = parameter.grad, None
    assert gradient is not None
    if master.grad is None:
        master.grad = gradient.to(master.dtype)
    else:
        master.grad.add_(gradient)
