"""Whether an engine can lend the tensors that it samples with to the trainer of their model."""

import json
from pathlib import Path

from flowrl.compiler.shapes import ModelShape, ParameterKind
from flowrl.config.run_file import RunFile
from flowrl.ir.graph import Graph
from flowrl.ir.types import ModelType
from flowrl.ops.model import Generate
from flowrl.ops.uses import uses_of
from flowrl.runtime.known_engines import FACTS


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
    engine = run.engines.role(role).generate.engine
    facts = FACTS[engine]
    if not uses_of(graph)[role].trains:
        return "it is an average"
    if role in copies_sampled(graph):
        return "a copy of it may be sampled from too"
    if run.roles[role].lora:
        return "an adapter trains, and it alone is sent"
    if not facts.lends:
        return f"the engine `{engine}` lends none"
    if quantised(Path(run.resolve(run.roles[role].path))):
        return "its weights are quantised"
    form = repacked(shape) if facts.repacks and shape else ""
    return form and f"{facts.title} has {form}"


def copies_sampled(graph: Graph) -> set[str]:
    """Return the roles of which snapshots are sampled from."""
    models = [node.args[0].type for node in graph.walk() if isinstance(node.op, Generate)]
    return {of.role for of in models if isinstance(of, ModelType) and of.snapshot}


def quantised(folder: Path) -> bool:
    """Whether a folder's config.json says that its weights are quantised."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text()) if file.is_file() else {}
    except (OSError, ValueError):  # told where the model is loaded
        return False
    return "quantization_config" in config


def repacked(shape: ModelShape) -> str:
    """Return a weight that vLLM has in another form, and in which; "" if it has none.

    Rows of a joined or padded tensor are no other form: they are views of it.
    """
    for parameter in shape.parameters():
        name = f"`{parameter.name}`"
        if parameter.experts is not None:
            return f"{name} among experts of its own form"
        if parameter.kind is ParameterKind.QKV_BY_HEAD:
            return f"the rows of {name} in another order"
        if parameter.is_matrix and parameter.output == 1:
            return f"{name} transposed"
    return ""
