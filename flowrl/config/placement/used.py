"""The uses of models that a run has: those of its program's step, and those of evaluations."""

from flowrl.config.run_file import RunFile
from flowrl.config.traced import POLICY, trace_evaluation
from flowrl.ir.graph import Graph
from flowrl.ops.uses import Uses, tokenizing_role, uses_of


def used(run: RunFile, graph: Graph) -> set[tuple[str, str]]:
    """Return each role that a run loads with each of its uses; see `USES`.

    Args:
        run: the run file, which may have models that its program never reads.
        graph: its program, after `simplify`.
    """
    uses = uses_of(graph) | judges_of(run, graph)
    found = {(role, use) for role, its in uses.items() for use in its.kinds or {"train"}}
    role = evaluated_role(run, graph)
    return found | ({(role, "generate")} if role else set())


def evaluated_role(run: RunFile, graph: Graph) -> str:
    """Return the role that is sampled from for evaluations alone; "" if there is none.

    Args:
        run: the run file.
        graph: its program, which trains the role.
    """
    role = tokenizing_role(graph)
    alone = run.eval is not None and role and not uses_of(graph)[role].generates
    return role if alone else ""


def judges_of(run: RunFile, graph: Graph) -> dict[str, Uses]:
    """Return the models that only evaluations ask for rewards, and what is asked of them."""
    if run.eval is None or not run.reward.models:
        return {}
    asked, read = uses_of(trace_evaluation(run).graph), uses_of(graph)
    return {role: its for role, its in asked.items() if role != POLICY and role not in read}
