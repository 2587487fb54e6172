"""The mesh of a pool's ranks: which of them have the same chunks, and which have all together."""

from datetime import timedelta
from functools import cache

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh


@cache
def mesh_of(group: ProcessGroup | None, replicas: int, kind: str, timeout: float) -> DeviceMesh:
    """Return the ranks of a group as `[fsdp]`, or as `[dp, fsdp]` if there are several replicas.

    The ranks of one replica are neighbours, as in `flowrl.ir.layout`. Every rank of the group must
    ask for it, in the same order; none outside of it need know. Asked again, nothing new is made.
    Dims are called after their groups: torch takes meshes that are equal for one, and would go on
    with the groups of one that has ended.

    Args:
        group: the ranks; all of this process's world if not given.
        replicas: how many times the weights are there; the number of ranks is a multiple of it.
        kind: of device, "cpu" or "cuda".
        timeout: seconds to wait for the others.
    """
    everyone = group or dist.group.WORLD
    assert everyone is not None, "ranks have joined"
    if replicas == 1:
        return DeviceMesh.from_group(everyone, kind, mesh_dim_names=(everyone.group_name,))
    numbers = torch.tensor(dist.get_process_group_ranks(everyone)).view(replicas, -1)
    replica, place = divmod(everyone.rank(), numbers.shape[1])
    groups = [_group(ranks.tolist(), timeout) for ranks in (numbers[:, place], numbers[replica])]
    names = tuple(each.group_name for each in groups)
    return DeviceMesh.from_group(groups, kind, numbers, mesh_dim_names=names)


def _group(ranks: list[int], timeout: float) -> ProcessGroup:
    made: ProcessGroup = dist.new_group(
        ranks, timedelta(seconds=timeout), use_local_synchronization=True
    )
    return made
