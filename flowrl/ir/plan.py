"""Plans: lowered graphs as JSON, which the compiler hands to the runtime."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from flowrl.errors import Location, ProgramError
from flowrl.ir.action import Action
from flowrl.ir.graph import Graph, Node, Value, new_value
from flowrl.ir.printer import names_of

FORMAT = 3

MOST_PENDING = 256
"""Calls to workers that a controller doesn't check at once: what they have sent may wait."""

Functions = Iterator[Callable[..., Any]]
"""The functions of users' ops, which are code and no data, in the order of their nodes."""


@attrs.frozen
class Pool:
    """GPUs that act as one; 0 of them is the CPU.

    Attributes:
        name: as the run file calls it.
        gpus: how many GPUs it has.
        roles: what lives there: `policy`, or one use of it, `policy.generate`.
        layouts: how weights lie over its ranks, by role or use; whole, on one, if not said.
        first: the rank of its first GPU, among all of the cluster.
        residencies: what becomes of a model while another one works, by role or use; it stays, if
            not said.
    """

    name: str
    gpus: int = 0
    roles: tuple[str, ...] = ()
    layouts: Mapping[str, str] = attrs.field(factory=dict)
    first: int = 0
    residencies: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def ranks(self) -> range:
        """The ranks of its GPUs."""
        return range(self.first, self.first + self.gpus)

    def residency_of(self, role: str, use: str) -> str:
        """Return what becomes of a use of a role while another one works there."""
        names = names_of_use(role, use)
        return next((self.residencies[n] for n in names if n in self.residencies), "resident")


def names_of_use(role: str, use: str) -> tuple[str, ...]:
    """Return what a use of a role may be called in a pool; the first one that is known counts."""
    trained = [f"{role}.train"] if use == "score" else []
    return (f"{role}.{use}", *trained, role)


@attrs.frozen
class Plan:
    """What runs, as data.

    Attributes:
        program: its name.
        pools: where.
        sampling: what the run file says of sampling from each role.
        body: the lowered graph; see `encode`.
        machines: what it was planned for, `2x8xH100`; "" if for none.
        actions: what sleeps, wakes and gets its weights before which op, if it was planned.
        forecast: seconds by task, bytes by edge, memory by seat, as predicted.
        notes: what of the run file it has no use for, in sentences.
    """

    program: str
    pools: tuple[Pool, ...]
    sampling: Mapping[str, Mapping[str, Any]]
    body: Mapping[str, Any]
    machines: str = ""
    actions: tuple[Action, ...] = ()
    forecast: Mapping[str, Any] = attrs.field(factory=dict)
    notes: tuple[str, ...] = ()

    def graph(self, functions: Iterable[Callable[..., Any]] = ()) -> Graph:
        """Return the lowered graph.

        Args:
            functions: what `functions_of` returned for it; without, users' ops can't run.
        """
        return decode(self.body, functions)

    def to_json(self) -> str:
        """Return the plan as JSON."""
        return json.dumps({"format": FORMAT, **attrs.asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Return the plan that `to_json` wrote.

        Raises:
            ProgramError: it is of another format.
        """
        data = json.loads(text)
        if data.get("format") != FORMAT:
            raise ProgramError(
                f"expected a plan of format {FORMAT}; got {data.get('format')}",
                hint="make it again with this version: `flowrl show PROGRAM --stage plan`",
            )
        pools = tuple(Pool(**{**p, "roles": tuple(p["roles"])}) for p in data["pools"])
        its = (Action(**{**a, "turns": tuple(a["turns"])}) for a in data["actions"])
        rest = {
            name: data[name] for name in ("program", "sampling", "body", "machines", "forecast")
        }
        return cls(pools=pools, actions=tuple(its), notes=tuple(data["notes"]), **rest)


def encode(graph: Graph) -> dict[str, Any]:
    """Return a graph as JSON-able data: values by their printed names, ops by their classes."""
    names = names_of(graph)
    for index, node in enumerate(graph.nodes):
        if node.op.name == "constant":
            names[node.results[0]] = f"#{index}"
    return {
        "name": graph.name,
        "params": {name: _plain(value) for name, value in graph.params},
        "inputs": [[name, _value(value)] for name, value in graph.inputs],
        "nodes": [_node(node, names) for node in graph.nodes],
        "outputs": [[name, names[value]] for name, value in graph.outputs],
    }


def functions_of(graph: Graph) -> list[Callable[..., Any]]:
    """Return the functions of users' ops, node by node, with those of nested graphs."""
    found = []
    for node in graph.nodes:
        op: Any = node.op
        found += [op.user] if getattr(op, "user", None) else []
        found += [f for region in op.regions().values() for f in functions_of(region)]
    return found


def decode(data: Mapping[str, Any], functions: Iterable[Callable[..., Any]] = ()) -> Graph:
    """Return the graph that `encode` wrote, with the functions of users' ops."""
    functions = iter(functions)
    values: dict[str, Value] = {}
    inputs = []
    for name, body in data["inputs"]:
        values[f"%{name}"] = new_value(_load(body["type"], functions), body["pool"])
        inputs.append((name, values[f"%{name}"]))
    nodes = []
    for body in data["nodes"]:
        results = tuple(new_value(_load(r["type"], functions), r["pool"]) for r in body["results"])
        values.update((r["name"], v) for r, v in zip(body["results"], results, strict=True))
        args = tuple(values[name] for name in body["args"])
        op, loc = _load(body["op"], functions), _load(body["loc"], functions)
        nodes.append(Node(op, args, results, loc, body["pool"]))
    outputs = tuple((name, values[value]) for name, value in data["outputs"])
    params = tuple((name, _load(value, functions)) for name, value in data["params"].items())
    return Graph(data["name"], tuple(inputs), tuple(nodes), outputs, params)


def _node(node: Node, names: Mapping[Value, str]) -> dict[str, Any]:
    return {
        "op": _plain(node.op),
        "args": [names[arg] for arg in node.args],
        "results": [{"name": names[value], **_value(value)} for value in node.results],
        "pool": node.pool,
        "loc": _plain(node.loc),
    }


def _value(value: Value) -> dict[str, Any]:
    return {"type": _plain(value.type), "pool": value.pool}


@cache
def _field_names(cls: type) -> tuple[str, ...] | None:
    """Return the names of an attrs class's fields; None of another class."""
    return tuple(field.name for field in attrs.fields(cls)) if attrs.has(cls) else None


def _plain(value: Any) -> Any:
    """Return attrs instances, enums and tuples as JSON-able data that `_load` reads."""
    if isinstance(value, Graph):
        return {"graph": encode(value)}
    if isinstance(value, Enum):
        return {"enum": _path(type(value)), "value": value.value}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    cls: type = type(value)
    if (names := _field_names(cls)) is not None:
        given = ((name, getattr(value, name)) for name in names)
        fields = {name: _plain(item) for name, item in given if not callable(item)}
        if isinstance(value, Location):
            fields["file"] = Path(value.file).name
        return {"class": _path(cls), **fields}
    if isinstance(value, Mapping):
        return {"dict": {name: _plain(item) for name, item in value.items()}}
    return value


def _load(value: Any, functions: Functions) -> Any:
    if isinstance(value, list):
        return tuple(_load(item, functions) for item in value)
    if not isinstance(value, dict):
        return value
    if "graph" in value:
        return decode(value["graph"], functions)
    if "dict" in value:
        return {name: _load(item, functions) for name, item in value["dict"].items()}
    if "enum" in value:
        return _find(value["enum"])(value["value"])
    fields = {name: _load(item, functions) for name, item in value.items() if name != "class"}
    if fields.get("code"):
        fields["user"] = next(functions, None)
    return _find(value["class"])(**fields)


def _path(cls: type) -> str:
    return f"{cls.__module__.removeprefix('flowrl.')}:{cls.__name__}"


def _find(path: str) -> Any:
    """Return a class of flowrl by path; plans name no others."""
    module, name = path.split(":")
    return getattr(import_module(f"flowrl.{module}"), name)
