"""From a run file to the plan of its program; models aren't loaded, and no GPU is needed."""

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.planning import Planned, plan_step
from flowrl.compiler.simplify import simplify
from flowrl.config.check import check_run, trace_run
from flowrl.config.run_file import RunFile
from flowrl.config.target import constraints_of, target_of
from flowrl.stages import Traced


def plan_run(run: RunFile) -> tuple[Traced, Planned]:
    """Return the program of a run file as traced, and its plan.

    Raises:
        FlowrlError: the run file or its program is wrong, or nothing fits.
    """
    traced = trace_run(run)
    graph = simplify(traced.graph, Cluster())
    check_run(run, graph, traced.program.inputs)
    target = target_of(run, graph)
    homes = {role: name for name, spec in run.cluster.pools.items() for role in spec.roles}
    return traced, plan_step(traced.graph, target, lambda seats: constraints_of(run, seats), homes)
