"""vLLM on several ranks: each runs its own on a part of the model, and all do the same.

Every rank schedules the same requests and computes the same tokens; nothing but what the model
adds up and gathers goes between them. vLLM calls that an external launcher.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed import distributed_c10d as c10d

from flowrl.errors import EngineError
from flowrl.runtime.engines.vllm.process import own_world
from flowrl.runtime.ranks.ranks import Ranks


def division(ranks: Ranks, on_cpu: bool) -> dict[str, Any]:
    """Return what vLLM is started with on ranks; nothing for one alone.

    GPUs talk through nccl alone: a worker sees its own, which vLLM's all-reduce in shared memory
    can't do with.
    """
    if ranks.count == 1:
        return {}
    return {
        "tensor_parallel_size": ranks.count,
        "distributed_executor_backend": through_gloo() if on_cpu else "external_launcher",
        "disable_custom_all_reduce": True,
    }


def through_gloo() -> type:
    """Return vLLM's executor of one rank, whose sums on CPUs go through gloo.

    vLLM would take shared memory, in which nobody notices that a rank has ended, and which two
    replicas on a machine would share. It does so where all ranks call it by one name.
    """
    launcher: Any = import_module("vllm.v1.executor.uniproc_executor").ExecutorWithExternalLauncher

    class ThroughGloo(launcher):  # type: ignore[misc]
        def _distributed_args(self) -> tuple[str, int, int]:
            method, rank, local = super()._distributed_args()
            return f"{method}:{rank}", rank, local

    return ThroughGloo


@contextmanager
def launched(ranks: Ranks, device: str) -> Iterator[None]:
    """Let vLLM start in a world of these ranks; then ours is the default again, if any.

    Raises:
        EngineError: vLLM runs on another number of ranks in this process.
    """
    if ranks.count == 1:
        with own_world():
            check_count(1)
            yield
        return
    group = ranks.group or dist.group.WORLD
    assert group is not None, "ranks have joined"
    number, before = agreed_number(ranks), set(c10d._world.pg_map)
    store, timeout = c10d._world.pg_map[group][1], timedelta(seconds=ranks.timeout)
    place = place_told(ranks.index, torch.device(device).index or 0)
    with own_world(number), place, without_queues():
        check_count(ranks.count)
        dist.init_process_group(
            "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl",
            store=PrefixStore(f"vllm/{number}", store),
            rank=ranks.index,
            world_size=ranks.count,
            timeout=timeout,
        )
        yield
        for made in c10d._world.pg_map.keys() - before:
            c10d._set_pg_timeout(timeout, made)


def agreed_number(ranks: Ranks) -> int:
    """Return a number that is new to all ranks, from which they count their groups."""
    drawn = [10**9 + secrets.randbelow(10**12) * 1000]
    dist.broadcast_object_list(drawn, group=ranks.group, group_src=0)
    return drawn[0]


@contextmanager
def place_told(rank: int, device: int) -> Iterator[None]:
    """Tell vLLM, in the environment, which rank it is and which of the GPUs here is its own."""
    place = {"RANK": str(rank), "LOCAL_RANK": str(device)}
    before = {name: os.environ.get(name) for name in place}
    os.environ.update(place)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def without_queues() -> Iterator[None]:
    """Have ranks of vLLM broadcast by their process group, the little that they do.

    Its queues are in shared memory and sockets, which stay behind when a process is killed.
    """
    queue: Any = import_module("vllm.distributed.device_communicators.shm_broadcast").MessageQueue
    made = vars(queue)["create_from_process_group"]
    queue.create_from_process_group = staticmethod(lambda *_, **__: None)
    try:
        yield
    finally:
        queue.create_from_process_group = made


def check_count(ranks: int) -> None:
    """Refuse a second division of models: vLLM has one in a process."""
    there = import_module("vllm.distributed.parallel_state")._TP
    if there is not None and there.world_size != ranks:
        raise EngineError(
            f"vLLM divides models over {there.world_size} ranks in this process; got {ranks}",
            hint="give the models that sample in one pool the same `tp`, or pools of their own",
        )
