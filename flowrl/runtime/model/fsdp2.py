"""Weights divided over ranks by FSDP2 (Zhao et al. 2023, arXiv:2304.11277), and whole again."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, distribute_tensor

from flowrl.runtime.model.layers import layers_of
from flowrl.runtime.model.narrow import is_linear
from flowrl.runtime.ranks.mesh import mesh_of
from flowrl.runtime.ranks.ranks import Fsdp2, Ranks

NARROW = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
"""Weights travel in bfloat16, and their gradients in float32."""


def shard(
    root: nn.Module, model: nn.Module, fsdp: Fsdp2, ranks: Ranks, device: str, *, autocast: bool
) -> None:
    """Divide a model's weights over ranks, layer by layer; gradients add up, undivided.

    Under autocast linear layers' weights travel in bfloat16, which it multiplies in anyway: half
    the bytes, and no copy of them that it would make itself waits for the backward pass. What else
    layers have, their norms, is gathered beside them as it is. A model with more than that in its
    layers, such as experts, is gathered in float32.

    Args:
        root: what is called; it has the model, and calls `norms` before, if it gets any.
        model: of transformers.
        fsdp: how.
        ranks: those of each replica have all chunks, one each.
        device: where what is gathered lives, and a chunk if it isn't offloaded.
        autocast: whether weights are float32 and are run under autocast to bfloat16.
    """
    kind = torch.device(device).type
    mesh = mesh_of(ranks.group, fsdp.replicas, kind, ranks.timeout)
    there = CPUOffloadPolicy(pin_memory=kind == "cuda") if fsdp.offload else OffloadPolicy()
    divided = partial(fully_shard, mesh=mesh, offload_policy=there)
    layers = layers_of(model)
    norms = norms_of(layers) if autocast else None
    if norms:
        divided(norms, reshard_after_forward=False)
        root.norms = norms
    by_layer = partial(divided, reshard_after_forward=fsdp.reshard_after_forward)
    for layer in layers:
        if norms:
            by_layer(layer, mp_policy=NARROW, ignored_params={*norms.parameters()})
        else:
            by_layer(layer)
    divided(root, reshard_after_forward=True)
    for unit in units(root):
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # gloo can add, and not much else


class Norms(nn.Module):
    """The norms of all layers; its call gathers them for a pass and for its backward."""

    def __init__(self, norms: list[nn.Module]) -> None:
        super().__init__()
        self.each = nn.ModuleList(norms)

    def forward(self) -> None:
        """Do nothing: it is a call for its hooks."""


def norms_of(layers: list[nn.Module]) -> Norms | None:
    """Return all that layers have besides linear ones; None if it is more than some vectors."""
    inside = (module for layer in layers for module in layer.modules())
    others = [m for m in inside if not is_linear(m) and any(True for _ in m.parameters(False))]
    small = all(parameter.dim() < 2 for module in others for parameter in module.parameters())
    return Norms(others) if others and small else None


def units(root: nn.Module) -> Iterator[FSDPModule]:
    """Yield the modules whose weights are gathered together."""
    return (module for module in root.modules() if isinstance(module, FSDPModule))


def chunk(tensor: Tensor) -> Tensor:
    """Return what this rank has of a tensor, aliased: all if it isn't divided."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def with_chunk(tensor: Tensor, own: Tensor) -> Tensor:
    """Return a tensor laid out as another, of which this rank has `own`.

    It is brought from the host to where the ranks talk.
    """
    if not isinstance(tensor, DTensor):
        return own
    mesh, layout, size = tensor.device_mesh, tensor.placements, tensor.size()
    return DTensor.from_local(own, mesh, layout, shape=size, stride=tensor.stride())


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with all its chunks; every rank must ask for it."""
    if not isinstance(tensor, DTensor):
        return tensor
    found: Tensor = tensor.full_tensor().detach()
    return found


def laid_as(tensor: Tensor, own: Tensor) -> Tensor:
    """Return a tensor, which every rank has whole, as `own` lies: this rank's chunk of it."""
    if not isinstance(own, DTensor):
        return tensor
    mesh, there = own.device_mesh, tensor.to(own.device_mesh.device_type)
    return distribute_tensor(there, mesh, own.placements, src_data_rank=None).to(own.device)
