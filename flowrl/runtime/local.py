"""Load the models that a graph uses into engines of this process."""

from collections.abc import Mapping
from typing import Any, cast

import attrs
import torch

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph, Node, Value
from flowrl.ir.types import ModelType
from flowrl.ops.model import Ema, Generate, ModelOp, Update
from flowrl.runtime.engine import Generator, Sampling, load
from flowrl.runtime.host import Host, Resident
from flowrl.runtime.models import Head, ModelSpec
from flowrl.runtime.schedule import TrainerOptions


@attrs.frozen
class RoleSetup:
    """How one role of a program is run.

    Attributes:
        model: what to load.
        generator: the engine that samples from it.
        generator_device: where that engine lives, if not where the model is trained.
        sampling: how, where the program is silent.
        sequences_per_block: how many sequences the generator computes together.
        trainer: the engine that runs it forward and trains it.
        options: of the optimiser and of microbatches.
    """

    model: ModelSpec
    generator: str = "hf"
    generator_device: str | None = None
    sampling: Sampling = attrs.field(factory=Sampling)
    sequences_per_block: int = 64
    trainer: str = "torch"
    options: TrainerOptions = attrs.field(factory=TrainerOptions)


@attrs.frozen
class Uses:
    """What a graph does with one role.

    Attributes:
        role: its name.
        nodes: the ops of the role.
        averaged: the ops of roles that it is averaged with, which have the same head.
    """

    role: str
    nodes: tuple[Node, ...]
    averaged: tuple[Node, ...] = ()

    @property
    def generates(self) -> bool:
        """Whether it is sampled from."""
        return any(isinstance(node.op, Generate) for node in self.nodes)

    @property
    def trains(self) -> bool:
        """Whether it is updated."""
        return any(isinstance(node.op, Update) for node in self.nodes)

    @property
    def head(self) -> Head:
        """The head that its ops read; values may be read of a language model too.

        Raises:
            EngineError: they read several others.
        """
        heads: dict[Head, Node] = {}
        for node in (*self.nodes, *self.averaged):
            heads.update(dict.fromkeys(_heads(node), node))
        if heads.keys() == {"lm", "value"}:
            return "lm+value"
        if len(heads) > 1:
            raise EngineError(
                f"`{self.role}` is read as {' and '.join(sorted(heads))}: "
                "only lm and value heads share a model",
                where="\n".join(node.loc.excerpt() for node in heads.values()),
                hint="make them two models of the program",
            )
        return next(iter(heads), "lm")


def _heads(node: Node) -> set[Head]:
    return cast(set[Head], node.op.heads()) if isinstance(node.op, ModelOp) else set()


def uses_of(graph: Graph) -> dict[str, Uses]:
    """Return what a graph and those inside it do with each role, none left out."""
    found: dict[str, list[Node]] = {}
    for inner in graph.nested():
        for node in inner.nodes:
            for role in sorted(_roles(node)):
                found.setdefault(role, []).append(node)
    averaged: dict[str, list[Node]] = {role: [] for role in found}
    for role, nodes in found.items():
        for node in nodes:
            for other in _roles(node) if isinstance(node.op, Ema) else ():
                averaged[role] += found[other]
    return {role: Uses(role, tuple(n), tuple(averaged[role])) for role, n in found.items()}


def _roles(node: Node) -> set[str]:
    """Return the roles of the models that a model op takes."""
    models = [arg.type for arg in node.args if isinstance(arg.type, ModelType)]
    return {model.role for model in models} if isinstance(node.op, ModelOp) else set()


@attrs.frozen
class Seat:
    """Which part of a graph a process has: that of a pool; its `lead` has the pool's values."""

    pool: str
    lead: bool

    def keeps(self, model: Value) -> bool:
        """Whether a model lives here between steps."""
        return self.lead and model.pool == self.pool

    def samples(self, uses: Uses) -> bool:
        """Whether a role is sampled from here."""
        return any(isinstance(n.op, Generate) and n.pool == self.pool for n in uses.nodes)


def load_models(
    graph: Graph,
    roles: Mapping[str, RoleSetup],
    tokenizers: Mapping[str, Any],
    host: Host,
    seat: Seat | None = None,
) -> None:
    """Load what the graph uses into `host`: a trainer or a scorer a role, and generators.

    Args:
        graph: lowered, for a process that has part of it.
        roles: what each role loads.
        tokenizers: by role.
        host: gets them.
        seat: which part this process has; all of it if not given.

    Raises:
        EngineError: a role isn't set up, or its model can't be loaded.
    """
    generators, sampling = {}, {}
    for role, uses in uses_of(graph).items():
        if role not in roles:
            raise EngineError(f"the graph uses `{role}`, for which no model is given")
        setup = roles[role]
        if seat is None or seat.keeps(graph.input(role)):
            host.models[role] = Resident(role, _engine(role, setup, uses))
        if uses.generates if seat is None else seat.samples(uses):
            generators[role] = load_generator(setup, tokenizers[role])
        sampling[role], host.sequences_per_block[role] = setup.sampling, setup.sequences_per_block
    host.generators, host.sampling, host.decoders = generators, sampling, tokenizers


def load_generator(setup: RoleSetup, tokenizer: Any) -> Generator:
    """Return the engine that samples from a role."""
    device = setup.generator_device or setup.model.device
    spec = attrs.evolve(setup.model, device=device)
    made: Generator = load("generate", setup.generator)(spec, tokenizer)
    return made


def _engine(role: str, setup: RoleSetup, uses: Uses) -> Any:
    if uses.trains:
        trainer = load("train", setup.trainer)
        return trainer(setup.model, setup.options, head=uses.head, role=role)
    return load("score", setup.trainer)(
        setup.model,
        head=uses.head,
        tokens_per_microbatch=setup.options.tokens_per_microbatch,
        packing=setup.options.packing,
        role=role,
    )


def pin_threads(threads: int) -> None:
    """Compute with this many threads: results depend on their number."""
    torch.set_num_threads(threads)
