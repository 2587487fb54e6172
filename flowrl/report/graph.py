"""Graphs as pictures: Mermaid, Graphviz DOT and SVG."""

import subprocess
from collections.abc import Iterator
from html import escape

from flowrl.errors import FlowrlError
from flowrl.ir.graph import Graph
from flowrl.report.drawing import draw
from flowrl.report.shapes import Box, Drawing, DrawnEdge, Look, Shape

COLOURS = {
    Look.MODEL: "#cfe2ff",
    Look.DATA: "#e2e3e5",
    Look.ENGINE: "#9ec5fe",
    Look.WORLD: "#ffe69c",
    Look.TENSOR: "#ffffff",
    Look.CONTROL: "#e2d9f3",
    Look.RESULT: "#d1e7dd",
}
TRANSFER = "#d9480f"
LINE = "#495057"

DOT_SHAPES = {
    Look.MODEL: "ellipse",
    Look.DATA: "cylinder",
    Look.RESULT: "note",
    Look.CONTROL: "hexagon",
}
MERMAID_SHAPES = {
    Look.MODEL: ("([", "])"),
    Look.DATA: ("[(", ")]"),
    Look.WORLD: ("[[", "]]"),
    Look.CONTROL: ("{{", "}}"),
}


def dot(graph: Graph) -> str:
    """Return the graph in Graphviz's language; pools and nested graphs are boxes."""
    drawing = draw(graph)
    lines = [
        f'digraph "{drawing.name}" {{',
        '  graph [fontname="Helvetica", compound=true, nodesep=0.3, ranksep=0.45]',
        '  node [fontname="Helvetica", fontsize=12, style=filled, shape=box, margin="0.12,0.06"]',
        '  edge [fontname="Helvetica", fontsize=9, color="#868e96"]',
        *_dot_box(drawing.box, "  "),
        *(_dot_edge(ends, edge) for ends, edge in drawing.edges.items()),
        "}",
    ]
    return "\n".join(lines)


def mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart, as Markdown hosts draw it."""
    drawing = draw(graph)
    return "\n".join(
        [
            "flowchart TD",
            *_mermaid_box(drawing.box, "  "),
            *_mermaid_edges(drawing),
            *(f"  classDef {look} fill:{colour},stroke:{LINE}" for look, colour in COLOURS.items()),
        ]
    )


def svg(graph: Graph) -> str:
    """Return the graph as SVG, laid out by Graphviz.

    Raises:
        FlowrlError: Graphviz isn't installed.
    """
    try:
        done = subprocess.run(
            ["dot", "-Tsvg"], input=dot(graph), capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise FlowrlError(
            "drawing an svg needs Graphviz, and there is no `dot` on the path",
            hint="install it (`apt-get install graphviz`), or take `--format mermaid`",
        ) from None
    return done.stdout


def _dot_box(box: Box, indent: str) -> Iterator[str]:
    for shape in box.shapes:
        yield indent + _dot_shape(shape)
    for inner in box.boxes:
        style = (
            'style="rounded,filled"; color="#f1f3f5"'
            if inner.pool
            else f'style=dashed; color="{LINE}"'
        )
        title = f"pool {inner.title}" if inner.pool else inner.title
        yield f'{indent}subgraph "cluster_{inner.id}" {{'
        yield f'{indent}  label="{title}"; fontsize=12; labeljust=l; {style}'
        yield from _dot_box(inner, indent + "  ")
        yield f"{indent}}}"


def _dot_shape(shape: Shape) -> str:
    head, *rest = map(escape, shape.lines)
    small = "".join(f'<br/><font point-size="9">{line}</font>' for line in rest)
    form = f", shape={DOT_SHAPES[shape.look]}" if shape.look in DOT_SHAPES else ""
    return f'{shape.id} [label=<{head}{small}>, fillcolor="{COLOURS[shape.look]}"{form}]'


def _dot_edge(ends: tuple[str, str], edge: DrawnEdge) -> str:
    label = "\\l".join([*edge.lines(), ""]) if edge.values else ""
    strong = f', color="{TRANSFER}", penwidth=2.5, fontcolor="{TRANSFER}"' if edge.transfer else ""
    return f'  {ends[0]} -> {ends[1]} [label="{label}"{strong}]'


def _mermaid_box(box: Box, indent: str) -> Iterator[str]:
    for shape in box.shapes:
        left, right = MERMAID_SHAPES.get(shape.look, ("[", "]"))
        label = "<br/>".join(map(_quoted, shape.lines))
        yield f'{indent}{shape.id}{left}"{label}"{right}:::{shape.look}'
    for inner in box.boxes:
        title = f"pool {inner.title}" if inner.pool else inner.title
        yield f'{indent}subgraph {inner.id.replace("@", "_")}["{_quoted(title)}"]'
        yield from _mermaid_box(inner, indent + "  ")
        yield f"{indent}end"


def _mermaid_edges(drawing: Drawing) -> Iterator[str]:
    bold: list[str] = []
    for number, ((start, end), edge) in enumerate(drawing.edges.items()):
        arrow = "==>" if edge.transfer else "-->"
        label = "<br/>".join(map(_quoted, edge.lines())) if edge.values else ""
        yield f'  {start} {arrow}|"{label}"| {end}' if label else f"  {start} {arrow} {end}"
        if edge.transfer:
            bold.append(str(number))
    if bold:
        yield f"  linkStyle {','.join(bold)} stroke:{TRANSFER}"


def _quoted(text: str) -> str:
    return text.replace("<", "#lt;").replace(">", "#gt;").replace('"', "#quot;")
