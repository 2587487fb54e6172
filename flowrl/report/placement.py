"""A placement as text: who lives where, how laid out, and what of it is elsewhere."""

from collections.abc import Iterator

from flowrl.compiler.cluster import OTHER_ROLES
from flowrl.compiler.evaluation import Evaluating
from flowrl.compiler.planning import Planned
from flowrl.compiler.tasks import Seat
from flowrl.ir.plan import Pool
from flowrl.report.actions import unused_lines
from flowrl.report.columns import table

ON_HOST = {"optimizer": "its moments on the host", "all": "all it keeps on the host"}


def pool_lines(plan: Planned) -> Iterator[str]:
    """Yield who lives where, how laid out, and which GPUs nobody has."""
    for pool in plan.cluster.pools:
        yield f"pool {pool.name}: {_gpus(plan, pool)}"
        seats = [(seat, its) for seat, its in plan.found.seats.items() if its.pool == pool.name]
        rows: list[tuple[str, ...]] = [
            (f"  {seat}", str(its.layout), its.residency, ", ".join(_settings(plan, seat)))
            for seat, its in seats
        ]
        if (own := plan.evaluation) and own.pool == pool.name:
            rows.append(_evaluation(plan, own))
        yield from table(rows)
        others = [role for role in pool.roles if role in OTHER_ROLES]
        if others:
            yield f"  {', '.join(others)}"
    yield from unused_lines(plan)


def _gpus(plan: Planned, pool: Pool) -> str:
    if not pool.gpus:
        return "no GPUs"
    kinds = dict.fromkeys(plan.target.machines.gpu(rank).name for rank in pool.ranks)
    ranks = f"ranks {pool.ranks[0]}-{pool.ranks[-1]}" if pool.gpus > 1 else f"rank {pool.first}"
    return f"{pool.gpus} {' and '.join(kinds)}, {ranks}"


def _settings(plan: Planned, seat: Seat) -> Iterator[str]:
    """Yield what is trained in place of a model, waits in host memory, or is reserved."""
    target, settings = plan.target, plan.target.workload.settings(seat.role)
    if seat.use == "train" and (adapter := target.adapters.get(seat.role)):
        own, every = adapter.count / 1e6, target.shapes[seat.role].count / 1e6
        yield f"an adapter of rank {adapter.rank}, {own:,.1f} M numbers beside {every:,.0f} M"
    divided = plan.found.seats[seat].layout.fsdp > 1
    if settings.offload == "all" and divided and seat.use != "generate":
        yield ON_HOST["all"]
    updated = seat.use == "train" and not plan.costs.averages(seat)
    if settings.offload == "optimizer" and updated:
        yield ON_HOST["optimizer"]
    if settings.offload_activations and updated:
        yield "what layers keep on the host"
    if settings.reserve and seat.use == "generate":
        yield settings.reserve.on(_memory(plan, plan.found.seated(seat).ranks[0]))


def _evaluation(plan: Planned, own: Evaluating) -> tuple[str, ...]:
    """Return the row of an engine that only evaluations use."""
    seat, reserve = own.seated.seat, plan.target.workload.settings(own.seated.seat.role).reserve
    said = f": {reserve.on(_memory(plan, own.seated.ranks[0]))}" if reserve else ""
    return f"  {seat}", str(own.seated.layout), own.asked.residency, f"for evaluations alone{said}"


def _memory(plan: Planned, rank: int) -> int:
    """Return the bytes of a GPU."""
    return plan.target.machines.gpu(rank).memory_bytes
