"""Why an engine doesn't lend the tensors that it samples with to the trainer of their model."""

import json
from pathlib import Path

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.shapes import ModelShape
from flowrl.config.placement.placed import Placed
from flowrl.config.run_file import RunFile
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout
from flowrl.ir.types import ModelType
from flowrl.ops.model import Generate
from flowrl.ops.uses import uses_of
from flowrl.runtime.known_engines import Facts


def unlent(run: RunFile, graph: Graph, role: str, shape: ModelShape | None) -> str:
    """Return why a trainer can't compute with an engine's own tensors, wherever both are.

    Args:
        run: the run file.
        graph: its program.
        role: whose weights change, and are sampled with.
        shape: of its model, if the planner knows its family.

    Returns:
        the reason; "" if nothing is known to keep it.
    """
    generate = run.engines.role(role).generate
    if not uses_of(graph)[role].trains:
        return "it is an average"
    if role in _copies_sampled(graph):
        return "a copy of it may be sampled from too"
    if run.roles[role].lora:
        return "only its adapter trains and is sent"
    if not generate.facts.lends:
        return f"the engine `{generate.engine}` lends none"
    if _quantised(run.model_folder(role)):
        return "its weights are quantised"
    return _other_form(generate.facts, shape) if generate.facts.repacks and shape else ""


def unshared(run: RunFile, placed: Placed, role: str) -> str:
    """Return why a trainer doesn't compute with an engine's own tensors where both run.

    Args:
        run: the run file.
        placed: its program, which trains the role and samples from it in one pool.
        role: whose weights change, and are sampled with.

    Returns:
        the reason; "" if it does.
    """
    cluster, pool = placed.cluster, placed.cluster.pool_of(role, "generate")
    facts, kept = run.engines.role(role).generate.facts, cluster.residency_of(role, "generate")
    if why := unlent(run, placed.graph, role, placed.shapes.get(role)):
        return why
    if placed.workers[pool] > 1:
        return f"pool `{pool}` has {placed.workers[pool]} workers"
    if facts.repacks and pool not in placed.gpus:
        return f"{facts.title} packs its weights for the CPU"
    if kept not in ("", "alias"):
        return f"its residency in pool `{pool}` is `{kept}`"
    trains = _kept_to_train(cluster, role)
    return "" if trains == "resident" else f"the residency of `{role}.train` is `{trains}`"


def apart(cluster: Cluster, role: str) -> str:
    """Return why no plan lets one process train a model and sample from it; "" if one may."""
    trains, samples = (cluster.pool_of(role, use) for use in ("train", "generate"))
    if trains != samples:
        return parted(trains, samples)
    gpus = cluster.gpus_of(role, "generate")
    if gpus > 1:
        return f"pool `{samples}` has {gpus} GPUs"
    for use in ("train", "generate"):
        layout = cluster.layout_of(role, use) or "1"
        if Layout.parse(layout).size > 1:
            return f"the layout of `{role}.{use}` is `{layout}`"
    kept = _kept_to_train(cluster, role)
    return "" if kept == "resident" else f"`{role}.train` is `{kept}`"


def parted(trains: str, samples: str) -> str:
    """Return what is said of a model that one pool trains and another samples from."""
    return f"pool `{trains}` trains it, pool `{samples}` samples from it"


def _kept_to_train(cluster: Cluster, role: str) -> str:
    return cluster.residency_of(role, "train") or "resident"


def _copies_sampled(graph: Graph) -> set[str]:
    """Return the roles of which snapshots are sampled from."""
    models = [node.args[0].type for node in graph.walk() if isinstance(node.op, Generate)]
    return {of.role for of in models if isinstance(of, ModelType) and of.snapshot}


def _quantised(folder: Path) -> bool:
    """Whether a folder's config.json says that its weights are quantised."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text()) if file.is_file() else {}
    except (OSError, ValueError):  # told where the model is loaded
        return False
    return "quantization_config" in config


def _other_form(facts: Facts, shape: ModelShape) -> str:
    """Return which weight an engine has in another form, and in which; "" if it has none.

    Rows of a joined or padded tensor are no other form: they are views of it.
    """
    for parameter in shape.parameters():
        if parameter.experts is not None:
            return f"{facts.title} has `{parameter.name}` among experts of its own form"
        if why := facts.reordered(parameter.name):
            return why
        if parameter.is_matrix and parameter.output == 1:
            return f"{facts.title} has `{parameter.name}` transposed"
    return ""
