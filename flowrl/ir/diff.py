"""What differs between two graphs, op by op, whatever their values and axes are numbered."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flowrl.ir.graph import Graph, Value
from flowrl.ir.matching import Item, Matching, Side, title
from flowrl.ir.nesting import written_regions
from flowrl.ir.printer import plain, show

SHOWN = 4
"""How many arguments of an op are printed."""


def diff(a: Graph, b: Graph) -> str:
    """Return what `b` has and `a` lacks (+), the other way round (-), and what changed (~).

    Ops are matched by what they compute from what, so neither numbering nor order matters; an op
    that only moved into or out of a loop is one change. Values are called by the op that makes
    them. Rows that are merely taken along (`take`) and means over turns don't count. Ends
    without a newline.
    """
    old, new = Side(a), Side(b)
    pairs = Matching(old, new).run()
    lines = [f"{a.name} -> {b.name}", *_inputs(old, new), *_ops(old, new, pairs)]
    lines += _outputs(old, new, pairs)
    return "\n".join(lines) if len(lines) > 1 else f"{lines[0]}: no difference"


def _inputs(old: Side, new: Side) -> Iterator[str]:
    changes = "; ".join(_attributes(dict(old.graph.params), dict(new.graph.params)))
    if changes:
        yield f"~ hyperparameters: {changes}"
    before = {name: plain(value) for name, value in old.graph.inputs}
    after = {name: plain(value) for name, value in new.graph.inputs}
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield f"- input {name}: {before[name]}"
        elif name not in before:
            yield f"+ input {name}: {after[name]}"
        elif before[name] != after[name]:
            yield f"~ input {name}: {before[name]} -> {after[name]}"


def _outputs(old: Side, new: Side, pairs: Matching) -> Iterator[str]:
    before, after = dict(old.graph.outputs), dict(new.graph.outputs)
    for name in dict.fromkeys([*before, *after]):
        shown = name.replace("metrics.", "metric ", 1) if name.startswith("metrics.") else name
        shown = shown if name.startswith("metrics.") else f"returns {name}"
        if name not in after:
            yield f"- {shown}"
        elif name not in before:
            yield f"+ {shown}"
        elif not pairs.equal(before[name], after[name]):
            yield f"~ {shown}: {old.name(before[name])} -> {new.name(after[name])}"


def _ops(old: Side, new: Side, pairs: Matching) -> Iterator[str]:
    """Yield the ops in the order of `b`; one that only `a` has after the one that it followed."""
    partner = {b: a for a, b in pairs.pairs.items()}
    gone: dict[Item | None, list[Item]] = {}
    last: Item | None = None
    for a in old.items:
        last = pairs.pairs.get(a, last)
        if a not in pairs.pairs:
            gone.setdefault(last, []).append(a)
    for b in (None, *new.items):
        if b is not None and b not in partner:
            yield f"+ {_line(b, new)}"
        elif b is not None:
            changes = list(_changes(partner[b], b, old, new, pairs))
            if changes:
                places = dict.fromkeys(str(item.node.loc) for item in (partner[b], b))
                yield f"~ {_path(b)}: {'; '.join(changes)}  # {' -> '.join(places)}"
        yield from (f"- {_line(a, old)}" for a in gone.get(b, ()))


def _changes(a: Item, b: Item, old: Side, new: Side, pairs: Matching) -> Iterator[str]:
    if a.place != b.place:
        yield f"in {a.place} -> in {b.place}"
    yield from _attributes(a.node.op.attributes(), b.node.op.attributes())
    for index in range(max(len(a.args), len(b.args))):
        before, after = a.args[index : index + 1], b.args[index : index + 1]
        if not (before and after and pairs.equal(before[0], after[0])):
            names = [_names(before, old), _names(after, new)]
            yield f"argument {index + 1}: {names[0]} -> {names[1]}"
    for mark, these, those in (("-", a, b), ("+", b, a)):
        extra = [name for name in these.results() if name not in those.results()]
        if extra:
            yield f"{mark} results {', '.join(extra)}"


def _attributes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            yield f"- {name}={show(before[name])}"
        elif name not in before:
            yield f"+ {name}={show(after[name])}"
        elif before[name] != after[name]:
            yield f"{name}: {show(before[name])} -> {show(after[name])}"


def _line(item: Item, side: Side) -> str:
    args = [side.name(arg) for arg in item.args]
    shown = ", ".join(args if len(args) <= SHOWN else [*args[: SHOWN - 1], "..."])
    given = ", ".join(f"{k}={show(v)}" for k, v in item.node.op.attributes().items())
    results = item.node.results
    type = f": {plain(results[0])}" if len(results) == 1 else ""
    return f"{_path(item)}({shown}){f' {{{given}}}' if given else ''}{type}  # {item.node.loc}"


def _path(item: Item) -> str:
    if item.owner is None:
        return title(item.node)
    several = len(written_regions(item.owner.node)) > 1
    return f"{_path(item.owner)}{f'.{item.region}' if several else ''} / {title(item.node)}"


def _names(values: Sequence[Value], side: Side) -> str:
    return ", ".join(map(side.name, values)) or "none"
