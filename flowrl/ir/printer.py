"""Graphs as text: stable, readable, and the thing that golden tests compare."""

from collections.abc import Mapping
from enum import Enum
from textwrap import wrap
from typing import Any

from flowrl.ir.graph import CAPTURED, Graph, Node, Value
from flowrl.ir.types import TensorType

WIDTH = 100
"""Where the list of what a graph returns is broken; its nodes are a line each."""

Names = dict[Value, str]


def text(graph: Graph, *, locations: bool = True) -> str:
    """Return the graph as text in the grammar of `docs/ir.md`; ends without a newline."""
    return "\n".join(_lines(graph, None, locations, indent=""))


def names_of(graph: Graph) -> Names:
    """Return the printed name of each value of a graph, nested graphs left out."""
    names = {value: f"%{name}" for name, value in graph.inputs}
    number = 0
    for node in graph.nodes:
        constant = node.op.attributes().get("value") if node.op.name == "constant" else None
        if constant is not None:
            names[node.results[0]] = show(constant)
            continue
        several = len(node.results) != 1
        inner = node.op.result_names(len(node.results))
        for name, value in zip(inner, node.results, strict=True):
            names[value] = f"%{number}.{name}" if several else f"%{number}"
        number += 1
    return names


def op_name(node: Node, names: Names) -> str:
    """Return what the results of an op are called together: `%3` of `%3.tokens`, `%_` of none."""
    return names[node.results[0]].partition(".")[0] if node.results else "%_"


def _lines(
    graph: Graph, outer: Mapping[str, str] | None, locations: bool, indent: str
) -> list[str]:
    names = names_of(graph)
    lines = [f"{indent}{'graph' if outer is None else 'region'} {graph.name}"]
    lines[0] += _braces(dict(graph.params))
    outer = outer or {}
    for name, value in graph.inputs:
        source = f" = {outer[name]}" if name in outer else ""
        lines.append(f"{indent}  input {names[value]}: {value.type}{_at(value.pool)}{source}")
    for node in graph.nodes:
        if node.op.name != "constant":
            lines += _node(node, names, locations, indent + "  ")
    outputs = ", ".join(
        names[value] if names[value] == f"%{name}" else f"{name}={names[value]}"
        for name, value in graph.outputs
    )
    return [*lines, *_wrapped(f"return {outputs}", indent + "  ")]


def _wrapped(line: str, indent: str) -> list[str]:
    """Break a list at its commas where it is wider than `WIDTH`, what follows indented."""
    return wrap(
        line,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + " " * 4,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _node(node: Node, names: Names, locations: bool, indent: str) -> list[str]:
    loc = f"  # {node.loc}" if locations else ""
    call = f"{node.op.name}({', '.join(names[arg] for arg in node.own_args)})"
    call += _braces(node.op.attributes()) + _at(node.pool)
    if len(node.results) == 1:
        lines = [f"{indent}{names[node.results[0]]}: {node.results[0].type} = {call}{loc}"]
    else:
        inner = node.op.result_names(len(node.results))
        lines = [f"{indent}{op_name(node, names)} = {call}{loc}"]
        lines += [
            f"{indent}    .{name}: {value.type}{_at(value.pool) if value.pool != node.pool else ''}"
            for name, value in zip(inner, node.results, strict=True)
        ]
    for name, region in node.op.regions().items():
        lines += _lines(region, _sources(node, name, names), locations, indent + "    ")
    return lines


def _sources(node: Node, region: str, names: Names) -> dict[str, str]:
    values = node.op.captured(region, node.args)
    return {f"{CAPTURED}{i}": names[value] for i, value in enumerate(values)}


def _braces(attributes: Mapping[str, Any]) -> str:
    shown = ", ".join(f"{name}={show(value)}" for name, value in attributes.items())
    return f" {{{shown}}}" if shown else ""


def show(value: Any) -> str:
    """Return an attribute as it is printed."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, float):
        return f"{value:g}"
    return f'"{value}"' if isinstance(value, str) and not value.isidentifier() else str(value)


def plain(value: Value) -> str:
    """Return a value's type without which axis of a name it is: `f32[prompt, sample]`."""
    if not isinstance(value.type, TensorType):
        return str(value.type).partition("[")[0]
    return f"{value.type.dtype}[{', '.join(axis.name for axis in value.axes)}]"


def _at(pool: str) -> str:
    return f" @{pool}" if pool else ""
