"""Random well-typed graphs, what they are run on, and clusters to compile them for."""

import attrs
import torch
from hypothesis import strategies as st

from flowrl import ops
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.errors import Location
from flowrl.functional.ragged import Ragged
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.records import Prompts, Rollouts
from flowrl.ir.trace import building, located
from flowrl.ir.types import DType, ModelType, Origin, TensorType, boolean, f32, i32
from flowrl.runtime.rows.rows import Row

CONSTANTS = (0.0, 1.0, 0.5, -2.0)
HERE = Location("graphs.py", 1)
CLUSTERS = {
    1: Cluster(),
    2: Cluster(
        (Pool("train", 4, ("policy", "critic")), Pool("rollout", 4, ("policy.generate", "data")))
    ),
    3: Cluster(
        (
            Pool("train", 4, ("policy", "critic")),
            Pool("rollout", 2, ("policy.generate", "reference")),
            Pool("host", 0, ("data", "reward")),
        )
    ),
    "laid out": Cluster(
        (
            Pool("train", 4, ("policy", "critic"), {"policy": "fsdp4", "policy.generate": "tp4"}),
            Pool("rest", 2, ("reference", "data"), {"reference": "fsdp2"}, first=4),
        )
    ),
}


@attrs.frozen(eq=False)
class Made:
    """The values that a graph may go on with: models, a record, tensors, the mask of some axes."""

    rollouts: Rollouts
    tensors: list
    models: dict
    masks: dict

    def tensor(self, draw, *, least=0, inside=None):
        """Draw a tensor of at least `least` axes; with `inside`, one that broadcasts into it."""
        fits = [
            x
            for x in self.tensors
            if len(x.type.axes) >= least
            and (inside is None or x.type.axes == inside[: len(x.type.axes)])
        ]
        return draw(st.sampled_from(fits)) if fits else None


def axes(x):
    return x.type.axes


def combine(draw, made, depth):
    a = made.tensor(draw)
    b = draw(st.one_of(st.sampled_from(CONSTANTS), st.just(made.tensor(draw, inside=axes(a)))))
    kind = draw(st.sampled_from(["add", "sub", "mul", "where", "neg", "detach", "maximum"]))
    made.tensors.append(
        {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: ops.clip(a * b, -8.0, 8.0),
            "where": lambda: ops.where(a > b, a, b),
            "neg": lambda: -a,
            "detach": lambda: a.detach(),
            "maximum": lambda: ops.maximum(a, b),
        }[kind]()
    )


def reduce(draw, made, depth):
    a = made.tensor(draw, least=1)
    kind = draw(st.sampled_from(["sum", "mean", "std"]))
    over = draw(st.sampled_from([None, axes(a)[-1].name]))
    made.tensors.append(getattr(a, kind)(over=over, mask=made.masks.get(axes(a))))


def select(draw, made, depth):
    condition = made.tensor(draw, least=1)
    if len(axes(condition)) == 3:
        condition = condition.sum("token", made.masks[axes(condition)])
    deep = [x for x in made.tensors if axes(x)[: len(axes(condition))] == axes(condition)]
    masks = [made.masks.get(axes(x)) for x in deep]
    kept = ops.select([[x, m] for x, m in zip(deep, masks, strict=True)], where=condition > 0.0)
    for x, mask in kept:
        made.tensors.append(x)
        if mask is not None:
            made.masks[axes(x)] = mask


def branch(draw, made, depth):
    a, b = made.tensor(draw), made.tensor(draw)
    c = made.tensor(draw, inside=axes(b))
    left, right = draw(
        st.permutations([lambda x: x + c, lambda x: x * 0.0 + b, lambda x: x * 1.0])
    )[:2]
    mean = a.mean(mask=made.masks.get(axes(a))) if axes(a) else a
    made.tensors.append(ops.cond(mean > 0.0, left, right, b))


def loop(draw, made, depth):
    first = axes(made.rollouts.tokens)[:1]
    extra = draw(st.sampled_from([x for x in made.tensors if axes(x)[:1] == first]))
    name = f"extra{depth}"
    batch = ops.record(made.rollouts, **{name: extra})
    scalars = [x for x in made.tensors if not axes(x)]
    start = draw(st.sampled_from(scalars))
    outer = draw(st.sampled_from(scalars))

    def body(total, mb):
        inner = within(made, mb)
        here = getattr(mb, name)
        inner.tensors.extend([here, total, outer])
        grow(draw, inner, depth - 1)
        mean = here.mean(mask=mb.mask if len(axes(here)) == 3 else None)
        last = next(x for x in reversed(inner.tensors) if not axes(x))
        return total + mean, {"mean": mean, "last": last}

    sequences, by = draw(st.integers(1, 4)), draw(st.sampled_from(["group", "sequence"]))
    balance, epochs = draw(st.sampled_from(["sequences", "tokens"])), draw(st.integers(1, 2))
    minibatches = ops.minibatches(batch, sequences=sequences, epochs=epochs, by=by, balance=balance)
    microbatches = ops.microbatches(batch, max_tokens=draw(st.integers(12, 24)), by=by)
    batches = draw(st.sampled_from([minibatches, microbatches]))
    total, stats = ops.scan(body, start, batches)
    made.tensors.extend([total, stats["mean"].sum(), stats["last"].sum()])


def forward(draw, made, depth):
    made.tensors.append(ops.logprobs(made.models["reference"], made.rollouts) + 0.0)
    made.tensors.append(ops.values(made.models["critic"], made.rollouts))


def train(draw, made, depth):
    role = draw(st.sampled_from(["policy", "critic"]))
    loss = lambda new: token_loss(draw, made, new)
    made.models[role], stats = ops.update(made.models[role], loss, made.rollouts)
    made.tensors.extend(stats.values())


def token_loss(draw, made, new):
    """Return a random loss: terms of tokens or samples, reduced, then combined."""
    mask = made.rollouts.mask
    captured = made.tensor(draw, inside=axes(mask))
    terms = [
        lambda: ops.token_mean(new.logprobs * captured, mask),
        lambda: ops.sequence_mean(new.entropy + 0.5, mask),
        lambda: (new.logprobs.sum(over="token", mask=mask) * 0.5).mean(),
        lambda: (new.rewards - 1.0).sum(),
        lambda: ops.token_mean(new.values, mask) * 2.0,
        lambda: ops.token_mean(ops.kl(new.logprobs, made.rollouts.logprobs), mask) ** 2.0,
        lambda: new.logprobs.std(mask=mask),
        lambda: ops.group_advantage(new.rewards).sum() / 3.0,
    ]
    first, second = (draw(st.sampled_from(terms))() for _ in range(2))
    return draw(st.sampled_from([lambda: first, lambda: first + second, lambda: first - second]))()


PURE = (combine, combine, combine, reduce, reduce, select, branch, loop)
FLAT = tuple(step for step in PURE if step is not loop)


def grow(draw, made, depth, steps=PURE):
    """Add a few random nodes."""
    for _ in range(draw(st.integers(1, 5 if depth else 2))):
        draw(st.sampled_from(steps if depth else FLAT))(draw, made, depth)


def within(made, mb):
    """Return what the body of a scan begins with."""
    masks = {axes(mb.mask): mb.mask}
    return Made(mb, [mb.logprobs, mb.truncated.float()], made.models, masks)


def begin(builder):
    """Return the inputs of a graph: models, a record of rollouts, tensors of each rank."""
    prompt, context = (builder.axis(name, "prompts", HERE) for name in ("prompt", "context"))
    sample, token = (builder.axis(name, "generate", HERE) for name in ("sample", "token"))
    rows = builder.input("rows", TensorType(DType.ROW, (prompt,)))
    builder.rows[prompt] = rows
    tokens = (prompt, sample, token)
    logprobs = TensorType(DType.F32, tokens, Origin("policy", 0, 1.0, sampled=True))
    rollouts = Rollouts(
        Prompts(builder.input("context", i32(prompt, context)), rows),
        builder.input("tokens", i32(*tokens)),
        builder.input("logprobs", logprobs),
        builder.input("mask", boolean(*tokens)),
        builder.input("truncated", boolean(prompt, sample)),
        builder.input("version", i32(prompt, sample)),
    )
    ranks = [(), (prompt,), (prompt, sample), tokens]
    tensors = [builder.input(f"x{len(rank)}", f32(*rank)) for rank in ranks]
    models = {r: builder.input(r, ModelType(r)) for r in ("policy", "critic", "reference")}
    return Made(rollouts, [*tensors, rollouts.logprobs], models, {tokens: rollouts.mask})


@st.composite
def graphs(draw, *, models=False):
    """Draw a graph. Without models it runs anywhere; see `inputs`."""
    builder = GraphBuilder("random")
    with building(builder), located(HERE):
        made = begin(builder)
        grow(draw, made, 2, (*PURE, forward, train, train) if models else PURE)
        names = ["policy", "critic"] if models else []
        found = draw(st.lists(st.sampled_from(made.tensors), min_size=1, max_size=4))
    outputs = [(name, made.models[name]) for name in names]
    return builder.finish([*outputs, *((f"out{i}", x) for i, x in enumerate(found))])


@st.composite
def inputs(draw):
    """Draw what a graph without models runs on, by name: ragged rows of small numbers."""
    per_prompt = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=3))
    samples = torch.tensor([len(group) for group in per_prompt], dtype=torch.int64)
    lengths = torch.tensor([n for group in per_prompt for n in group], dtype=torch.int64)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    sizes = {0: 1, 1: len(samples), 2: len(lengths), 3: int(lengths.sum())}
    number = lambda rank: torch.randint(-3, 4, (sizes[rank],), generator=generator) / 2
    ragged = lambda x, rank: Ragged(x, (samples, lengths)[: rank - 1])
    one = torch.ones(len(samples), dtype=torch.int64)
    return {
        "rows": tuple(Row(i, f"data:{i}", "") for i in range(len(samples))),
        "context": Ragged(one, (one,)),
        "tokens": ragged(torch.ones(sizes[3], dtype=torch.int64), 3),
        "logprobs": ragged(number(3), 3),
        "mask": ragged(number(3) > -1, 3),
        "truncated": ragged(number(2) > 0, 2),
        "version": ragged(torch.zeros(sizes[2], dtype=torch.int64), 2),
        "x0": number(0)[0],
        **{f"x{rank}": ragged(number(rank), rank) for rank in (1, 2, 3)},
        **dict.fromkeys(("policy", "critic", "reference")),
    }
