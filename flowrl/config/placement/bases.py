"""The models of a run file that adapters are trained on."""

from flowrl.config.run_file import RunFile
from flowrl.ir.graph import Graph
from flowrl.ops.uses import over_bases


def bases_of(run: RunFile) -> dict[str, list[str]]:
    """Return the roles with an adapter on it, for each model that is the base of some."""
    found: dict[str, list[str]] = {}
    for role in run.adapted:
        model = run.models[role]
        for name, other in run.models.items():
            same = run.model_folder(name) == run.model_folder(role)
            if same and other.dtype == model.dtype and not other.lora:
                found.setdefault(name, []).append(role)
    return found


def shared_bases(graph: Graph) -> list[str]:
    """Return a sentence for each model of a compiled graph that is the base under an adapter."""
    return [
        f"`{base}` is the base under the adapter of `{role}`: it is not loaded again."
        for base, role in over_bases(graph).items()
    ]
