"""The GPU memory that engines reserve which sample, held against what a plan puts beside it."""

from flowrl.compiler.gigabytes import gigabytes, itemised
from flowrl.compiler.occupancy import occupancies
from flowrl.compiler.planning import Planned
from flowrl.config.run_file import RunFile
from flowrl.errors import RunFileError


def check_reserves(run: RunFile, planned: Planned) -> None:
    """Check that what engines reserve holds the weights, and the longest sequence beside them.

    Raises:
        RunFileError: an engine could not start, or not end such a sequence.
    """
    seats = [(planned.costs, planned.found.seated(seat)) for seat in planned.found.seats]
    if its := planned.evaluation:
        seats.append((its.costs, its.seated))
    for costs, seated in seats:
        seat = seated.seat
        reserve = planned.target.workload.settings(seat.role).reserve
        if reserve is None or not (lacks := costs.lacks(seated)):
            continue
        took, gpu = costs.itemised(seated), planned.target.machines.gpu(seated.ranks[0])
        key = "gpu_memory_utilization" if reserve.cache_bytes is None else "kv_cache_gib"
        raise RunFileError(
            f"`{seat}` ({seated.layout}): {reserve.on(gpu.memory_bytes)}; beside weights "
            f"{gigabytes(took.weights)} and engine {gigabytes(took.engine)}, the cache for the "
            f"longest sequence is {gigabytes(lacks)} short",
            where=run.where(f"engines.{seat.role}.generate.vllm.{key}"),
            hint=f"raise `{key}`, or divide the model over more GPUs (`tp`)",
        )


def check_evaluation(run: RunFile, planned: Planned) -> None:
    """Check that GPUs hold an engine that only evaluations use beside what else its pool has.

    Raises:
        RunFileError: one of them is too small, for the evaluation or for the step beside it.
    """
    its = planned.evaluation
    if its is None:
        return
    for of in occupancies(planned):
        if of.pool != its.pool or of.total <= of.capacity:
            continue
        raise RunFileError(
            f"`{its.seated.seat}`, which only evaluations use, doesn't fit in pool `{of.pool}`: "
            f"while `{of.seat}` works, {gigabytes(of.total)} of a GPU's {gigabytes(of.capacity)} "
            f"are taken: {itemised(of.items, of.asleep)}",
            where=run.where("eval"),
            hint="claim it in a pool of its own, with the executor `ray`, or let it reserve less",
        )
