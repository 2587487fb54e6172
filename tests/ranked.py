"""Ranks in processes of a test's own."""

import os

import torch.distributed as dist
from torch import multiprocessing
from torch.distributed import distributed_c10d

from flowrl.runtime.ranks.mesh import mesh_of


def as_ranks(count, function, *args):
    """Call a function of a rank's number and of arguments, once in each of some processes."""
    multiprocessing.spawn(_as_rank, (function, args), nprocs=count)


def _as_rank(index, function, args):
    """Be one of the processes, which ends before Python does.

    A thread of gloo that still holds a tensor by then aborts it (pytorch issue 190489).
    """
    function(index, *args)
    leave()
    os._exit(0)


def leave():
    """Leave the other ranks, if there are any, and end what groups an engine has made.

    Where ranks make a group among themselves, torch names it after how many each has.
    """
    mesh_of.cache_clear()
    if dist.is_initialized():
        dist.destroy_process_group()
    for group in reversed(list(distributed_c10d._world.pg_names)):
        dist.destroy_process_group(group)
