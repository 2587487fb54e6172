"""The text or picture of a program at one stage."""

from collections.abc import Sequence

from flowrl.compiler.emit import emit
from flowrl.compiler.pipeline import compile_graph
from flowrl.ir.graph import Graph
from flowrl.ir.printer import text
from flowrl.report.graph import dot, mermaid, svg
from flowrl.report.subject import subject

PASS = {
    "simplify": "simplify",
    "bases": "share_bases",
    "losses": "split_losses",
    "place": "place",
    "layout": "lay_out",
    "transfer": "insert_transfers",
    "plan": "insert_transfers",
}
"""The pass that each stage stops after."""

FORMATS = {"text": text, "mermaid": mermaid, "dot": dot, "svg": svg}


def picture(given: str, stage: str, format: str, sets: Sequence[str]) -> str:
    """Return a program at a stage, in one of `FORMATS`; the plan as text is JSON.

    Args:
        given: a program or a run file.
        stage: `traced`, or one of `PASS`.
        format: one of `FORMATS`.
        sets: hyperparameters, or keys of the run file.

    Raises:
        FlowrlError: the program can't be loaded, traced or compiled, or Graphviz is missing.
    """
    traced, cluster = subject(given, sets)
    seen: dict[str, Graph] = {}
    if stage != "traced":
        compile_graph(traced.graph, cluster, seen.__setitem__)
    graph = seen[PASS[stage]] if seen else traced.graph
    if stage == "plan" and format == "text":
        return emit(graph, cluster, traced.sampling).to_json()
    return FORMATS[format](graph)
