"""Model ops and rewards: what engines and reward workers do for a graph."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import attrs
import torch

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Graph, Node, Op
from flowrl.ops import model
from flowrl.runtime.engine import Completion, Request, Sampling, Sequences
from flowrl.runtime.graph.graph_loss import GraphLoss
from flowrl.runtime.host import Handle, Host, Path, Resident
from flowrl.runtime.rows import selection
from flowrl.runtime.rows.places import parents, take_rows
from flowrl.runtime.rows.selection import Selection
from flowrl.runtime.sampling.blocks import blocks


class Evaluator(Protocol):
    """What model ops ask of whoever evaluates them: the host, and their nested graphs' results."""

    host: Host

    def run(self, graph: Graph, inputs: Sequence[Any], path: Path = ()) -> list[Any]:
        """Return the outputs of a graph; `path` has the turns of the loops around it."""
        ...


def generate(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Sample, block by block."""
    handle, context, rows = args
    done = answers(it, node, handle, asked(it, node, handle, context, rows, path))
    it.host.compare(handle)
    return rollouts(it, done, handle.version)


def asked(
    it: Evaluator,
    node: Node,
    handle: Handle,
    context: Ragged,
    rows: Any,
    path: Path,
    workers: int = 1,
) -> list[list[Request]]:
    """Return the blocks of requests that a generator computes together, on one of the workers."""
    op = node.op
    assert isinstance(op, model.Generate)
    prompts = [row.tolist() for row in context.rows()]
    seeds = it.host.row_seeds(rows, op.number, *path)
    requests = [Request(p, s, op.n) for p, s in zip(prompts, seeds, strict=True)]
    return blocks(requests, it.host.sequences_per_block.get(handle.resident.role), workers)


def answers(
    it: Evaluator, node: Node, handle: Handle, asked: Sequence[Sequence[Request]]
) -> list[list[Completion]]:
    """Return the samples of each request of these blocks, in order."""
    op = node.op
    assert isinstance(op, model.Generate)
    generator = it.host.generator(handle)
    with it.host.timed("generate"):
        sampling = _sampling(op, it.host.sampling.get(handle.resident.role, Sampling()))
        return [group for block in asked for group in generator.generate(block, sampling)]


def _sampling(op: model.Generate, base: Sampling) -> Sampling:
    """Return how to sample: as the program says, and where it is silent as the run file does."""
    names = ("temperature", "top_p", "top_k", "max_tokens", "min_tokens", "stop")
    given = {name: getattr(op, name) for name in names}
    changes: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
    return attrs.evolve(base, **changes)


def rollouts(it: Evaluator, done: list[list[Completion]], version: int) -> Sequence[Any]:
    """Return completions as `Rollouts` has them."""
    flat = [completion for group in done for completion in group]
    it.host.counts["tokens/sampled"] += sum(len(c.tokens) for c in flat)
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
    context = take_rows(context, parents(tokens.lengths))
    return Sequences(context, Ragged(tokens.values, tokens.lengths[-1:]))


def forward(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Return what a model says of tokens, by a forward pass."""
    handle, context, tokens, *rows = args
    name, temperature = _output(node.op)
    read = it.host.readers.get(handle.resident.role) if rows else None
    with it.host.timed("score"):
        batch = read(rows[0], tokens) if read else _own_tokens(it, handle, context, tokens)
        result = handle.engine.forward(batch, (name,), temperature)[name]
    return (Ragged(result, tokens.lengths[:-1] if name == "rewards" else tokens.lengths),)


def bootstrap(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Return a critic's values after the samples that were cut off, 0 after the others."""
    handle, context, tokens, truncated = args
    cut = truncated.values.nonzero()[:, 0]
    with it.host.timed("score"):
        every = sequences(context, tokens)
        batch = Sequences(take_rows(every.context, cut), take_rows(every.tokens, cut))
        found = handle.engine.forward(batch, ("end_values",), 1.0)["end_values"]
    after = found.new_zeros(len(every)).index_copy(0, cut, found)
    return (Ragged(after, tokens.lengths[:-1]),)


def _own_tokens(it: Evaluator, handle: Handle, context: Ragged, tokens: Ragged) -> Sequences:
    """Return tokens as a model reads them.

    Raises:
        EngineError: they are of another tokenizer than the model's.
    """
    role = handle.resident.role
    if role in it.host.readers:
        raise EngineError(
            f"`{role}` has another tokenizer than these completions: it can only be frozen, and "
            "give one reward a sample",
            hint="take a model with the same tokenizer",
        )
    return sequences(context, tokens)


def _output(op: Op) -> tuple[str, float]:
    """Return the name of the engine's output that an op asks for, and its temperature."""
    if isinstance(op, model.Logprobs):
        return "logprobs", op.temperature
    if isinstance(op, model.Collision):
        return "collision", op.temperature
    if isinstance(op, model.Rewards):
        return ("token_rewards" if op.per == "token" else "rewards"), 1.0
    return "values", 1.0


def score(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Call reward functions on decoded samples; what models give is there already."""
    op, (rows, tokens, *models) = node.op, args
    assert isinstance(op, model.Score)
    host = it.host
    given = {name: x.values.tolist() for name, x in zip(op.models, models, strict=True)}
    if host.score is None:
        raise EngineError("no rewards are bound", hint=f"add `[reward.{op.functions[0]}]`")
    with host.timed("reward"):
        decode = host.detokenizers[op.role].decode
        texts = [decode(t.tolist(), skip_special_tokens=True) for t in tokens.rows()]
        of = parents(tokens.lengths).tolist()
        numbers = [i for n in tokens.lengths[0].tolist() for i in range(n)]
        theirs = [rows[i] for i in of]
        scores = host.score(op.functions, theirs, texts, numbers, host.step, given)
    for name, count in scores.counts.items():
        host.counts[name] += count
    return _scored(scores.values, tokens, node.args[1].axes, op, host.drop_failed)


def _scored(
    values: list[list[float | None]], tokens: Ragged, axes: Any, op: model.Score, drop: bool
) -> Sequence[Any]:
    of = parents(tokens.lengths)
    failed = torch.tensor([any(column[i] is None for column in values) for i in range(len(of))])
    rewards = torch.tensor(
        [[x or 0.0 for x in column] for column in values], dtype=torch.get_default_dtype()
    ).T
    bad = set(of[failed.nonzero()[:, 0]].tolist()) if drop and len(of) else set()
    kept = torch.tensor(
        [i for i in range(len(tokens.lengths[0])) if i not in bad], dtype=torch.int64
    )
    chosen = Selection(axes[:1], (kept,))
    samples = tokens.lengths[:1]
    if op.reward is None:
        value = Ragged(rewards.reshape(-1), samples)
    else:
        named = torch.full((len(of),), len(values))
        value = Ragged(rewards.reshape(-1), (*samples, named))
    return selection.take(chosen, value, axes[:-1] + ((op.reward,) if op.reward else ())), chosen


def update(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Take one optimizer step."""
    op, handle, context, tokens = node.op, *args[:3]
    assert isinstance(op, model.Update)
    captured = args[len(args) - op.loss.captures() :]
    with it.host.timed("update"):
        loss = GraphLoss(op, captured, tokens, handle.version, partial(it.run, path=path))
        batch = _own_tokens(it, handle, context, tokens)
        done = handle.engine.update(batch, op.reads, op.temperature, loss, it.host.step)
        stats = [done.stats[name] for name in ("loss", "grad_norm", "learning_rate")]
        stats += loss.metrics(done.new)
    return (handle.next(), *(torch.tensor(float(x)) for x in stats))


def snapshot(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Copy a model."""
    (handle,) = args
    of = handle.resident
    copy = Resident(of.role, handle.engine.snapshot(), handle.version, of.home or of)
    return (Handle(copy, copy.version),)


def base(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Return the model without its adapter."""
    (handle,), op = args, node.op
    assert isinstance(op, model.Base)
    under: Any = handle.engine.base()
    return (Handle(Resident(op.role, under, home=handle.resident), 0),)


def ema(it: Evaluator, node: Node, args: list[Any], path: Path) -> Sequence[Any]:
    """Average two models into the first."""
    target, source = args
    assert isinstance(node.op, model.Ema)
    target.engine.average(source.engine.weights(), node.op.decay)
    return (target.next(),)
