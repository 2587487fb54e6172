"""What can be said of a program or a run file before anything is loaded."""

from collections.abc import Iterator, Mapping, Sequence

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.findings import findings
from flowrl.compiler.groups import check_groups
from flowrl.compiler.pipeline import compile_graph
from flowrl.compiler.simplify import simplify
from flowrl.config.checks.batches import checked_batches
from flowrl.config.checks.inert import inert_keys
from flowrl.config.checks.program import check_inputs, check_run
from flowrl.config.placement.bases import shared_bases
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.placement.placed import Placed
from flowrl.config.placement.used import judges_of
from flowrl.config.placement.weights import sync_sentences
from flowrl.config.run_file import RunFile, load_run_file
from flowrl.config.traced import trace_run
from flowrl.data.files import files_of, names_files
from flowrl.data.spec import DataSpec
from flowrl.data.tokenizer import HUB_NAME
from flowrl.errors import RewardError
from flowrl.ir.graph import Graph
from flowrl.ops.uses import uses_of
from flowrl.report.subject import is_run_file, subject
from flowrl.rewards.resolve import resolve
from flowrl.rewards.server import ServerSpec
from flowrl.rewards.spec import RewardSpec
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
    seen: dict[str, Graph] = {}
    compile_graph(traced.graph, cluster_of(run, graph), seen.__setitem__)
    check_run(run, graph, traced.program.inputs)
    keys = [*check_inputs(run, traced.inputs).values(), *(["eval.data"] if run.eval else [])]
    specs = {key: run.structure(DataSpec, key) for key in keys}
    for name in run.reward.functions:
        if name in run.reward.servers:
            run.structure(ServerSpec, f"reward.{name}")
        elif name not in run.roles:
            _find_functions(run, name)
    check_tasks(run)
    found = [*inert_keys(run, graph), *shared_bases(seen["share_bases"])]
    sound = f"`{run.source.file.name}` and its program `{traced.program.name}` are sound."
    weights = sync_sentences(run, Placed.by_run_file(run, seen["insert_transfers"]))
    found += [*_models(run, graph), *_rows(run, specs), *_findings(traced)]
    return [sound, checked_batches(run, graph), *weights, *found]


def _models(run: RunFile, graph: Graph) -> Iterator[str]:
    """Check the models' folders; yield a sentence for each that is odd, or that isn't here."""
    read = (*uses_of(graph), *judges_of(run, graph))
    paths = {role: run.roles[role].path for role in read}
    here = {role for role, path in paths.items() if run.resolve(path).exists()}
    if here:
        from flowrl.train.folders import check_folders  # transformers takes seconds

        yield from check_folders(run, graph)
    for role, path in paths.items():
        is_path = ("/" in path or "." in path) and not HUB_NAME.fullmatch(path)
        if is_path and role not in here:
            yield f"`{run.model_key(role)}`: there is no folder `{path}` here; a run needs it."


def _rows(run: RunFile, specs: Mapping[str, DataSpec]) -> Iterator[str]:
    """Yield a sentence for each data source whose files aren't here."""
    folder = run.resolve(".")
    for key, spec in specs.items():
        is_named = ":" in spec.source  # a task, a function, a split
        if not is_named and names_files(spec.source) and not files_of(spec.source, folder):
            yield f"`{key}.source`: there is no file `{spec.source}` here; a run needs it."


def _find_functions(run: RunFile, name: str) -> None:
    """Import a reward's functions from the user's files; those of packages may take seconds."""
    spec = run.structure(RewardSpec, f"reward.{name}")
    for function in spec.functions.values():
        if isinstance(function, str) and ".py:" in function:
            try:
                resolve(function, spec.options, run.resolve("."))
            except RewardError as error:
                where = run.where(f"reward.{name}")
                raise error.told(where=where, made=[error.where]) from error


def _findings(traced: Traced) -> list[str]:
    return findings(traced.program, traced.hyperparameters, traced.sampling, traced.reward_models)
