"""The reference interpreter: one process, no pools. It says what a graph means."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from flowrl.errors import EngineError, FlowrlError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Graph, Node, Op
from flowrl.ops import control, data, model, move
from flowrl.ops.tensor import Constant, TensorOp
from flowrl.runtime import selection, tensors
from flowrl.runtime.blocks import blocks
from flowrl.runtime.engine import Completion, Request, Sampling, Sequences, Trainer
from flowrl.runtime.host import Handle, Host, Resident
from flowrl.runtime.learning import GraphLoss
from flowrl.runtime.rows import PromptBatch
from flowrl.runtime.selection import Selection

Path = tuple[int, ...]
"""The turns and rounds of the loops around a node; part of a seed."""


class Interpreter:
    """Evaluates graphs on a host."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def run(self, graph: Graph, inputs: Sequence[Any], path: Path = ()) -> list[Any]:
        """Return the outputs of `graph` on `inputs`.

        Raises:
            FlowrlError: an op failed; it names the op and the line.
        """
        env = {value: x for (_, value), x in zip(graph.inputs, inputs, strict=True)}
        for node in graph.nodes:
            results = self.evaluate(node, [env[arg] for arg in node.args], path)
            env.update(zip(node.results, results, strict=True))
        return [env[value] for _, value in graph.outputs]

    def evaluate(self, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
        """Return the results of one node."""
        try:
            return EVALUATE[type(node.op)](self, node, args, path)
        except FlowrlError as error:
            if not error.where:
                raise type(error)(
                    f"{node.op.name}: {error.problem}", where=node.loc.excerpt(), hint=error.hint
                ) from error
            raise


def _axes(node: Node, index: int) -> Any:
    return node.args[index].type.axes  # type: ignore[union-attr]


def _constant(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    assert isinstance(node.op, Constant)
    return (torch.tensor(node.op.value),)


def _tensor(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    assert isinstance(node.op, TensorOp)
    return tensors.evaluate(node.op, args, node)


def _transfer(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return args


def _generate(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op, (handle, context, rows) = node.op, args
    assert isinstance(op, model.Generate)
    role = handle.resident.role
    with it.host.timed("generate"):
        sampling = _sampling(op, it.host.sampling.get(role, Sampling()))
        generator = it.host.generator(handle)
        prompts = [row.tolist() for row in context.rows()]
        seeds = it.host.row_seeds(rows, op.number, *path)
        requests = [Request(p, s, op.n) for p, s in zip(prompts, seeds, strict=True)]
        done = [
            group
            for block in blocks(requests, it.host.sequences_per_block.get(role, 64))
            for group in generator.generate(block, sampling)
        ]
    it.host.counts["tokens/sampled"] += sum(len(c.tokens) for group in done for c in group)
    return _rollouts(done, handle.version)


def _sampling(op: model.Generate, base: Sampling) -> Sampling:
    given = {
        "temperature": op.temperature,
        "top_p": op.top_p,
        "top_k": op.top_k,
        "max_tokens": op.max_tokens,
        "min_tokens": op.min_tokens,
        "stop": op.stop,
    }
    return attrs.evolve(base, **{name: x for name, x in given.items() if x is not None})


def _rollouts(done: list[list[Completion]], version: int) -> Sequence[Any]:
    flat = [completion for group in done for completion in group]
    samples = torch.tensor([len(group) for group in done], dtype=torch.int64)
    lengths = torch.tensor([len(c.tokens) for c in flat], dtype=torch.int64)
    levels = (samples, lengths)
    tokens = torch.tensor([t for c in flat for t in c.tokens], dtype=torch.int64)
    logprobs = torch.tensor([x for c in flat for x in c.logprobs], dtype=torch.get_default_dtype())
    truncated = torch.tensor([c.truncated for c in flat], dtype=torch.bool)
    return (
        Ragged(tokens, levels),
        Ragged(logprobs, levels),
        Ragged(torch.ones(len(tokens), dtype=torch.bool), levels),
        Ragged(truncated, levels[:1]),
        Ragged(torch.full((len(flat),), version), levels[:1]),
    )


def sequences(context: Ragged, tokens: Ragged) -> Sequences:
    """Return each sample's prompt and tokens as rows."""
    rows = selection.rows_of(tokens.lengths)
    return Sequences(
        selection.repeat_rows(context, rows), Ragged(tokens.values, tokens.lengths[-1:])
    )


def _forward(output: str) -> Callable[..., Sequence[Any]]:
    def evaluate(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
        handle, context, tokens = args
        temperature = getattr(node.op, "temperature", 1.0)
        per_token = getattr(node.op, "per", "token") == "token"
        name = ("token_rewards" if per_token else "rewards") if output == "rewards" else output
        with it.host.timed("score"):
            batch = sequences(context, tokens)
            result = handle.engine.forward(batch, (name,), temperature)[name]
        return (Ragged(result, tokens.lengths if per_token else tokens.lengths[:-1]),)

    return evaluate


def _score(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op, (rows, tokens) = node.op, args
    assert isinstance(op, model.Score)
    host = it.host
    if host.score is None:
        raise EngineError("no rewards are bound", hint=f"add `[reward.{op.functions[0]}]`")
    with host.timed("reward"):
        decode = host.decoders[op.role].decode
        texts = [decode(t.tolist(), skip_special_tokens=True) for t in tokens.rows()]
        of = selection.rows_of(tokens.lengths).tolist()
        numbers = [i for n in tokens.lengths[0].tolist() for i in range(n)]
        scores = host.score(op.functions, [rows[i] for i in of], texts, numbers, host.step)
    for name, count in scores.counts.items():
        host.counts[name] += count
    return _scored(scores.values, tokens, _axes(node, 1), op, host.drop_failed)


def _scored(
    values: list[list[float | None]], tokens: Ragged, axes: Any, op: model.Score, drop: bool
) -> Sequence[Any]:
    of = selection.rows_of(tokens.lengths)
    failed = torch.tensor([any(column[i] is None for column in values) for i in range(len(of))])
    rewards = torch.tensor([[x or 0.0 for x in column] for column in values], dtype=torch.get_default_dtype()).T
    bad = set(of[failed.nonzero()[:, 0]].tolist()) if drop and len(of) else set()
    kept = torch.tensor([i for i in range(len(tokens.lengths[0])) if i not in bad], dtype=torch.int64)
    chosen = Selection(axes[:1], (kept,))
    samples = tokens.lengths[:1]
    if op.reward is None:
        value = Ragged(rewards.reshape(-1), samples)
    else:
        named = torch.full((len(of),), len(values))
        value = Ragged(rewards.reshape(-1), (*samples, named))
    return selection.take(chosen, value, axes[:-1] + ((op.reward,) if op.reward else ())), chosen


def _update(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op, handle, context, tokens = node.op, *args[:3]
    assert isinstance(op, model.Update)
    run = lambda graph, inputs: it.run(graph, inputs, path)  # noqa: E731
    with it.host.timed("update"):
        trainer: Trainer = handle.engine
        if not hasattr(trainer, "update"):
            raise EngineError(
                f"`{handle.resident.role}` is frozen: its engine doesn't train",
                hint=f"give the role a trainer: `[engines.{handle.resident.role}.train]`",
            )
        loss = GraphLoss(op, args[len(args) - op.loss.captures() :], tokens, handle.version, run)
        done = trainer.update(
            sequences(context, tokens), op.reads, op.temperature, loss, it.host.step
        )
        stats = [done.stats[name] for name in ("loss", "grad_norm", "learning_rate")]
        stats += loss.metrics(done.new)
    return (handle.next(), *(torch.tensor(float(x)) for x in stats))


def _snapshot(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    (handle,) = args
    copy = Resident(handle.resident.role, handle.engine.snapshot(), handle.version)
    return (Handle(copy, copy.version),)


def _ema(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    target, source = args
    assert isinstance(node.op, model.Ema)
    decay, weights = node.op.decay, source.engine.weights()
    with torch.no_grad():
        for name, x in target.engine.weights().items():
            if x.is_floating_point():
                x.mul_(decay).add_(weights[name].to(x), alpha=1 - decay)
    return (target.next(),)


def _select(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return (selection.select(args[0], _axes(node, 0)),)


def _take(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return (selection.take(args[0], args[1], _axes(node, 1)),)


def _align(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    return (selection.align(args[0], args[1], args[2], _axes(node, 0)),)


def _minibatches(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op = node.op
    assert isinstance(op, control.Minibatches)
    seed = it.host.seed_of(op.number, *path)
    parts = selection.divide(args[0], _axes(node, 0), op.sequences, op.epochs, op.by, seed)
    return (parts,)


def _scan(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op = node.op
    assert isinstance(op, control.Scan)
    parts, carry = args[0], args[1 : 1 + op.carry]
    captures = op.body.captures()
    fields = range(1 + op.carry, len(args) - captures)
    outer = args[len(args) - captures :]
    stats: list[list[Tensor]] = [[] for _ in op.body.outputs[op.carry :]]
    for turn, part in enumerate(parts):
        rows = [selection.take(part, args[i], _axes(node, i)) for i in fields]
        out = it.run(op.body, [*carry, *rows, *outer], (*path, turn))
        carry = out[: op.carry]
        for column, x in zip(stats, out[op.carry :], strict=True):
            column.append(x)
    return (*carry, *(Ragged(torch.stack(x) if x else torch.zeros(0)) for x in stats))


def _cond(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op = node.op
    assert isinstance(op, control.Cond)
    first, second = op.then.captures(), op.orelse.captures()
    operands = args[1 : len(args) - first - second]
    outer = args[len(args) - first - second :]
    if bool(args[0]):
        return it.run(op.then, [*operands, *outer[:first]], path)
    return it.run(op.orelse, [*operands, *outer[first:]], path)


def _sample_until(it: Interpreter, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    op = node.op
    assert isinstance(op, control.SampleUntil)
    inner = [name for name, _ in op.draw.inputs if name.startswith("prompts.")]
    prompts, outer = args[: len(inner)], args[len(inner) :]
    axes = [value.type.axes for _, value in op.draw.outputs[1:]]  # type: ignore[union-attr]
    name = inner[0]
    rounds: list[list[Any]] = []
    found = drawn = 0
    for number in range(op.rounds):
        if number:
            batch = _more(it.host, name, len(args[1]))
            prompts = [batch.context, batch.rows]
        drawn += len(prompts[1])
        keep, *leaves = it.run(op.draw, [*prompts, *outer], (*path, op.number, number))
        chosen = selection.select(keep, op.draw.outputs[0][1].type.axes)  # type: ignore[union-attr]
        rounds.append([selection.take(chosen, x, a) for x, a in zip(leaves, axes, strict=True)])
        found += len(chosen.index[0])
        if found >= op.groups:
            break
    if found < op.groups and op.shortfall == "error":
        raise EngineError(
            f"sample_until: {op.groups} groups wanted, {found} of {drawn} prompts kept "
            f"in {op.rounds} rounds",
            hint="draw more rounds or prompts, keep more, or go on with fewer: shortfall='accept'",
        )
    columns = [selection.concat(parts) for parts in zip(*rounds, strict=True)]
    ends = min(found, op.groups), found
    batch_ = [selection.first(x, a, 0, ends[0]) for x, a in zip(columns, axes, strict=True)]
    surplus = [selection.first(x, a, *ends) for x, a in zip(columns, axes, strict=True)]
    return (*batch_, *surplus, torch.tensor(drawn))


def _more(host: Host, name: str, count: int) -> PromptBatch:
    cursor = next(iter(host.cursors.values()), None)
    if cursor is None:
        raise EngineError("there is no data to draw more prompts from")
    batch = cursor.take(count)
    assert isinstance(batch, PromptBatch)
    return batch


Evaluate = Callable[[Interpreter, Node, list[Any], Path], Sequence[Any]]

EVALUATE: Mapping[type[Op], Evaluate] = {
    Constant: _constant,
    TensorOp: _tensor,
    move.Transfer: _transfer,
    model.Generate: _generate,
    model.Logprobs: _forward("logprobs"),
    model.Values: _forward("values"),
    model.Rewards: _forward("rewards"),
    model.Score: _score,
    model.Update: _update,
    model.Snapshot: _snapshot,
    model.Ema: _ema,
    data.Select: _select,
    data.Take: _take,
    data.Align: _align,
    control.Minibatches: _minibatches,
    control.Scan: _scan,
    control.Cond: _cond,
    control.SampleUntil: _sample_until,
}
"""What each op means. A new kind of op needs one line here; a new tensor op needs none."""
