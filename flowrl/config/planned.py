"""From a run file to the plan of its program; models aren't loaded, and no GPU is needed."""

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.planning import Planned, plan_step
from flowrl.compiler.search import Constraints
from flowrl.compiler.simplify import simplify
from flowrl.compiler.tasks import Seat
from flowrl.config.checks.program import check_run
from flowrl.config.checks.reserves import check_evaluation, check_reserves
from flowrl.config.checks.residency import check_aliases
from flowrl.config.placement.cluster import written_cluster
from flowrl.config.placement.evaluation import with_evaluation
from flowrl.config.placement.target import constraints_of, target_of
from flowrl.config.run_file import RunFile
from flowrl.config.traced import trace_run
from flowrl.stages import Traced


def plan_run(run: RunFile, cluster: Cluster | None = None) -> tuple[Traced, Planned]:
    """Return the program of a run file as traced, and its plan.

    Args:
        run: the run file.
        cluster: pools and layouts that are decided; what stands in the run file, if not given.

    Raises:
        FlowrlError: the run file or its program is wrong, or nothing fits.
    """
    traced = trace_run(run)
    graph = simplify(traced.graph, Cluster())
    check_run(run, graph, traced.program.inputs)
    target = target_of(run, graph)
    pools = cluster or written_cluster(run, graph)
    check_aliases(run, graph, pools, target.shapes)

    def decided(seats: tuple[Seat, ...]) -> Constraints:
        return constraints_of(run, seats, pools)

    planned = plan_step(traced.graph, target, decided, run.cluster.claims, pools)
    planned = with_evaluation(run, planned, pools)
    check_reserves(run, planned)
    check_evaluation(run, planned)
    return traced, planned
