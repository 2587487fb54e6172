"""The GPU memory that engines reserve which sample, held against what a plan puts beside it."""

from flowrl.compiler.planning import Planned
from flowrl.config.run_file import RunFile
from flowrl.errors import RunFileError


def check_reserves(run: RunFile, planned: Planned) -> None:
    """Check that what engines reserve holds the weights, and the longest sequence beside them.

    Raises:
        RunFileError: an engine could not start, or not end such a sequence.
    """
    for seat in planned.found.seats:
        seated = planned.found.seated(seat)
        reserve = planned.target.workload.settings(seat.role).reserve
        if reserve is None or not (lacks := planned.costs.lacks(seated)):
            continue
        took, gpu = planned.costs.itemised(seated), planned.target.machines.gpu(seated.ranks[0])
        key = "gpu_memory_utilization" if reserve.cache_bytes is None else "kv_cache_gib"
        raise RunFileError(
            f"`{seat}` ({seated.layout}): {reserve.on(gpu.memory_bytes)}; beside weights "
            f"{took.weights / 1e9:.1f} GB and engine {took.engine / 1e9:.1f} GB, the cache of the "
            f"longest sequence lacks {lacks / 1e9:.1f} GB",
            where=run.where(f"engines.{seat.role}.generate.vllm.{key}"),
            hint=f"raise `{key}`, or divide the model over more GPUs (`tp`)",
        )
