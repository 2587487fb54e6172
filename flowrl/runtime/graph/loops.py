"""Control flow: scan, cond and sample_until, turn by turn."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flowrl.ir.graph import Node, Op
from flowrl.ops import control
from flowrl.runtime.graph import machine
from flowrl.runtime.graph.machine import Machine
from flowrl.runtime.graph.shortfall import shortfall
from flowrl.runtime.host import Path
from flowrl.runtime.rows import selection


def scan(it: Machine, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Run the body for each minibatch."""
    op = node.op
    assert isinstance(op, control.Scan)
    division, carry = args[0], args[1 : 1 + op.carry]
    captures = op.body.captures()
    fields = range(1 + op.carry, len(args) - captures)
    outer = args[len(args) - captures :]
    stats: list[list[Any]] = [[] for _ in op.body.outputs[op.carry :]]
    for turn in range(it.number(len, division)):
        rows = [
            it.call(machine.minibatch, args[i], division, turn, node.args[i].axes) for i in fields
        ]
        out = it.run(op.body, [*carry, *rows, *outer], (*path, turn))
        carry = out[: op.carry]
        for column, x in zip(stats, out[op.carry :], strict=True):
            column.append(x)
    return (*carry, *(it.call(machine.stacked, *column) for column in stats))


def cond(it: Machine, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Run one of two graphs."""
    op = node.op
    assert isinstance(op, control.Cond)
    first, second = op.then.captures(), op.orelse.captures()
    operands = args[1 : len(args) - first - second]
    outer = args[len(args) - first - second :]
    if it.number(bool, args[0]):
        return it.run(op.then, [*operands, *outer[:first]], path)
    return it.run(op.orelse, [*operands, *outer[first:]], path)


def sample_until(it: Machine, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Draw rounds until enough groups are kept."""
    op = node.op
    assert isinstance(op, control.SampleUntil)
    axes = [value.axes for _, value in op.draw.outputs]
    names = [name for name, _ in op.draw.inputs if name.startswith("prompts.")]
    left, args = args[: op.carried], args[op.carried :]
    given = dict(zip(names, args, strict=False))
    outer = args[len(names) :]
    rounds: list[list[Any]] = [left] if left else []
    scored: dict[str, list[Any]] = {name: [] for name, _ in op.scored}
    before = found = it.number(selection.count, left[0]) if left else 0
    wanted, drawn = op.groups or it.number(len, given["prompts.rows"]), 0
    for number in range(op.rounds):
        if number:
            given = it.draw(op.source, drawn // number)
        drawn += it.number(len, given["prompts.rows"])
        inputs = [given[name] for name in names]
        keep, *leaves = it.run(op.draw, [*inputs, *outer], (*path, op.number, number))
        for name, place in op.scored:
            scored[name].append(leaves[place])
        kept = it.call(selection.select, keep, axes[0])
        pairs = zip(leaves, axes[1:], strict=True)
        rounds.append([it.call(machine.chosen, x, kept, of) for x, of in pairs])
        found += it.number(machine.kept, kept)
        if found >= wanted:
            break
    if found < wanted and op.shortfall == "error":
        there = f"{before} left over and " if before else ""
        there += f"{found - before} of {drawn} prompts kept in {op.rounds} rounds"
        raise shortfall(it, node, f"{wanted} groups wanted, {there}", scored)
    columns = [it.call(machine.joined, *parts) for parts in zip(*rounds, strict=True)]
    batch = min(found, wanted)
    rest = max(batch, found - op.capacity) if left else batch
    split = [
        [it.call(selection.first, x, of, *part) for x, of in zip(columns, axes[1:], strict=True)]
        for part in ((0, batch), (rest, found))
    ]
    return (*split[0], *split[1], torch.tensor(drawn))


CONTROL: Mapping[type[Op], Callable[[Machine, Node, list[Any], Path], Sequence[Any]]] = {
    control.Scan: scan,
    control.Cond: cond,
    control.SampleUntil: sample_until,
}
"""The ops whose nested graphs a machine walks."""
