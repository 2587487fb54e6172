"""What can be said of a program or a run file before anything is loaded."""

from collections.abc import Collection, Mapping, Sequence

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.findings import findings
from flowrl.compiler.groups import check_groups
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.simplify import simplify
from flowrl.config.checks.batches import checked_batches, rows_drawn
from flowrl.config.checks.inert import inert_keys
from flowrl.config.checks.program import check_inputs, check_run
from flowrl.config.placement.bases import shared_bases
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.weights import sync_sentences
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.config.traced import trace_run
from flowrl.data.spec import DataSpec
from flowrl.errors import DataError
from flowrl.ir.graph import Graph
from flowrl.report.named import check_functions, check_models, check_sources
from flowrl.report.subject import is_run_file, subject
from flowrl.rewards.server import ServerSpec
from flowrl.stages import Traced
from flowrl.train.reasoning_tasks import check_tasks


def checked(given: str, sets: Sequence[str]) -> str:
    """Check a program or a run file; return what follows from it, a sentence a line.

    Raises:
        FlowrlError: something is wrong with the program, the run file, or a reward's file.
    """
    if is_run_file(given):
        return "\n".join(_run_file(given, sets))
    traced, cluster = subject(given, sets)
    compile_graph(traced.graph, cluster)
    check_groups(traced.graph)
    return "\n".join([f"`{traced.program.name}` is sound.", *_findings(traced)])


def _run_file(given: str, sets: Sequence[str]) -> list[str]:
    run = load_run_file(given, sets)
    traced = trace_run(run)
    graph = simplify(traced.graph, Cluster())
    check_run(run, graph, traced.program.inputs)
    seen: dict[str, Graph] = {}
    compile_graph(traced.graph, cluster_of(run, graph), seen.__setitem__)
    read = {k: run.structure(DataSpec, k) for k in check_inputs(run, traced.inputs).values()}
    _check_lasts(run, graph, read)
    specs = read | ({"eval.data": run.structure(DataSpec, "eval.data")} if run.eval else {})
    for name in run.reward.servers:
        run.structure(ServerSpec, f"reward.{name}")
    check_tasks(run)
    absent = [*check_models(run, graph), *check_sources(run, specs), *check_functions(run)]
    found = [*inert_keys(run, graph), *shared_bases(seen["share_bases"])]
    sound = f"`{run.source.file.name}` and its program `{traced.program.name}` are sound."
    weights = sync_sentences(run, Placed.by_run_file(run, seen["insert_transfers"]))
    return [
        sound,
        checked_batches(run, graph),
        *weights,
        *found,
        *absent,
        *_findings(traced, run.program.hyperparameters),
    ]


def _check_lasts(run: RunFile, graph: Graph, specs: Mapping[str, DataSpec]) -> None:
    """Refuse data that end before the run does, whatever their files hold."""
    drawn = rows_drawn(run, graph)
    if drawn is None:
        return
    for key, spec in specs.items():
        try:
            spec.check_lasts(*drawn)
        except DataError as error:
            where = run.where(f"{key}.epochs", f"{key}.limit")
            raise error.told(f"`{key}`: {error.problem}", where=where) from error


def _findings(traced: Traced, given: Collection[str] | None = None) -> list[str]:
    known = traced.hyperparameters, traced.sampling, traced.reward_models
    return findings(traced.program, *known, given=given)
