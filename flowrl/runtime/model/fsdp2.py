"""Weights divided over ranks by FSDP2 (Zhao et al. 2023, arXiv:2304.11277), and whole again."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from flowrl.runtime.model.layers import layers_of
from flowrl.runtime.ranks.mesh import mesh_of
from flowrl.runtime.ranks.ranks import Fsdp2, Ranks


def shard(root: nn.Module, model: nn.Module, fsdp: Fsdp2, ranks: Ranks, device: str) -> None:
    """Divide a model's weights over ranks, layer by layer; gradients add up, undivided.

    Args:
        root: what is called; it has the model.
        model: of transformers.
        fsdp: how.
        ranks: those of each replica have all chunks, one each.
        device: where what is gathered lives, and a chunk if it isn't offloaded.
    """
    kind = torch.device(device).type
    mesh = mesh_of(ranks.group, fsdp.replicas, kind, ranks.timeout)
    there = CPUOffloadPolicy(pin_memory=kind == "cuda") if fsdp.offload else OffloadPolicy()
    divided = partial(fully_shard, mesh=mesh, offload_policy=there)
    for layer in layers_of(model):
        divided(layer, reshard_after_forward=fsdp.reshard_after_forward)
    divided(root, reshard_after_forward=True)
    for unit in units(root):
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)  # gloo can add, and not much else


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
