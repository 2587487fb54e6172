"""The models of a run file that adapters are trained on."""

from flowrl.compiler.cluster import Cluster
from flowrl.config.rules.adapters import adapted
from flowrl.config.rules.pools import on_gpu
from flowrl.config.run_file import RunFile
from flowrl.config.toml.types import as_toml
from flowrl.errors import RunFileError
from flowrl.ir.graph import Graph
from flowrl.ops.model import Ema
from flowrl.ops.uses import over_bases, uses_of
from flowrl.runtime.known_engines import FACTS


def bases_of(run: RunFile) -> dict[str, str]:
    """Return the role with an adapter on it, for each model that is the base of one."""
    found: dict[str, str] = {}
    for role in adapted(run):
        model = run.models[role]
        for name, other in run.models.items():
            same = run.resolve(other.path) == run.resolve(model.path)
            if same and other.dtype == model.dtype and not other.lora:
                found.setdefault(name, role)
    return found


def check_adapters(run: RunFile, graph: Graph, cluster: Cluster) -> None:
    """Refuse adapters of what the program doesn't train, or averages with another model.

    And of what an engine samples from on a GPU in a dtype that it has no kernels of adapters for.

    Raises:
        RunFileError: naming the key, and the line that averages.
    """
    uses = uses_of(graph)
    for role in adapted(run):
        where = run.where(f"models.{role}.lora")
        if role not in uses or not uses[role].trains:
            raise RunFileError(
                f"`{role}` has an adapter to train, but the program doesn't update it",
                where=where,
                hint="leave the table out",
            )
        means = (node for node in uses[role].nodes if isinstance(node.op, Ema))
        if node := next(means, None):
            raise RunFileError(
                f"`{role}` has an adapter, and a mean of adapters is not that of the models",
                where=f"{where}\n{node.loc.excerpt()}",
                hint="train the whole model: leave the table out",
            )
        if uses[role].generates and on_gpu(run, cluster, role, "generate"):
            _check_dtype(run, role)


def _check_dtype(run: RunFile, role: str) -> None:
    engine, dtype = run.engines.role(role).generate.engine, run.models[role].dtype
    if dtype not in (known := FACTS[engine].adapter_dtypes):
        raise RunFileError(
            f"on a GPU {FACTS[engine].title} computes adapters in {' or '.join(known)}; "
            f"`models.{role}.dtype` is {as_toml(dtype)}",
            where=run.where(f"models.{role}.lora"),
            hint=f'set `models.{role}.dtype = "{known[0]}"`, or `engine = "hf"`',
        )


def shared_bases(graph: Graph) -> list[str]:
    """Return a sentence for each model of a compiled graph that is the base under an adapter."""
    return [
        f"`{base}` is the base under the adapter of `{role}`: it is not loaded again."
        for base, role in over_bases(graph).items()
    ]
