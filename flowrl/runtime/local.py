"""Load the models that a graph uses into engines of this process."""

import logging
from collections.abc import Mapping
from typing import Any

import attrs
import torch

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph
from flowrl.ops.uses import Uses, tokenizing_role, uses_of
from flowrl.runtime.engine import Generator, Sampling, load
from flowrl.runtime.graph.reading import reader_of
from flowrl.runtime.host import Host, Resident
from flowrl.runtime.known_engines import FACTS
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.member import Member
from flowrl.runtime.ranks.ranks import ALONE, Fsdp2, Ranks
from flowrl.runtime.training.schedule import TrainerOptions

log = logging.getLogger(__name__)


@attrs.frozen
class RoleSetup:
    """How one role of a program is run.

    Attributes:
        model: what to load.
        generator: the engine that samples from it.
        generator_options: what it is started with, besides the model and its tokenizer.
        generator_device: where that engine lives, if not where the model is trained.
        sampling: how, where the program is silent.
        sequences_per_block: how many sequences the generator computes together; None for all of
            a worker's.
        trainer: the engine that runs it forward and trains it.
        options: of the optimizer and of microbatches.
        fsdp: how its weights are divided over the ranks of its pool; None gives each all.
        shares: whether the trainer computes with the generator's own tensors, where these can be
            lent.
    """

    model: ModelSpec
    generator: str = "hf"
    generator_options: Mapping[str, object] = attrs.field(factory=dict)
    generator_device: str | None = None
    sampling: Sampling = attrs.field(factory=Sampling)
    sequences_per_block: int | None = FACTS["hf"].sequences
    trainer: str = "torch"
    options: TrainerOptions = attrs.field(factory=TrainerOptions)
    fsdp: Fsdp2 | None = None
    shares: bool = False


def load_models(
    graph: Graph,
    roles: Mapping[str, RoleSetup],
    tokenizers: Mapping[str, Any],
    host: Host,
    member: Member | None = None,
) -> None:
    """Load what the graph uses into `host`: a trainer or a scorer a role, and generators.

    Args:
        graph: lowered, for a process that has part of it.
        roles: what each role loads.
        tokenizers: by role.
        host: gets them.
        member: which part this process has; all of it if not given.

    Raises:
        EngineError: a role isn't set up, or its model can't be loaded.
    """
    generators, sampling = {}, {}
    for role, uses in uses_of(graph).items():
        if role not in roles:
            raise EngineError(f"the graph uses `{role}`, for which no model is given")
        setup = roles[role]
        if member is None or member.keeps(graph.input(role)):
            ranks = member.ranks if member else ALONE
            _load_model(uses, setup, tokenizers, tokenizing_role(graph), host, ranks)
        if uses.generates if member is None else member.samples(uses):
            generators[role] = _load_generator(uses, setup, tokenizers[role], host, role, member)
        sampling[role], host.sequences_per_block[role] = setup.sampling, setup.sequences_per_block
    host.generators, host.sampling, host.decoders = generators, sampling, tokenizers
    for role, generator in generators.items():
        if roles[role].shares and role in host.models:
            _share(host, role, generator)


def _share(host: Host, role: str, generator: Generator) -> None:
    """Have a role's trainer compute with its generator's own tensors, if they can be lent."""
    trainer: Any = host.models[role].engine
    try:
        trainer.share(generator.lent())
    except EngineError as error:
        log.warning("`%s`: its weights are copied at each update: %s", role, error.problem)
        return
    host.shared[generator] = trainer


def borrow_models(
    graph: Graph,
    roles: Mapping[str, RoleSetup],
    tokenizers: Mapping[str, Any],
    host: Host,
    lender: Host,
    lent: Mapping[str, str],
    member: Member | None = None,
) -> None:
    """Load what the graph uses into `host`, but for what a lender has: generators and judges.

    Args:
        graph: lowered; it trains nothing.
        roles: what each role loads.
        tokenizers: by role.
        host: gets them.
        lender: another host of this process. Judges, which only give rewards, have the same
            names there.
        lent: what the lender calls each role that is sampled from.
        member: which part of the graph this process has; all of it if not given.

    Raises:
        EngineError: a model can't be loaded.
    """
    host.room, host.loaded, host.shared = lender.room, lender.loaded, lender.shared
    _borrow_judges(graph, roles, tokenizers, host, lender, member)
    generators, sampling = {}, {}
    for role, its_name in lent.items():
        setup, uses = roles[role], uses_of(graph)[role]
        if member is None or member.samples(uses):
            generators[role] = lender.generators.get(its_name) or _load_generator(
                uses, setup, tokenizers[role], host, its_name, member
            )
        sampling[role], host.sequences_per_block[role] = setup.sampling, setup.sequences_per_block
    host.generators, host.sampling, host.decoders = generators, sampling, tokenizers


def _borrow_judges(
    graph: Graph,
    roles: Mapping[str, RoleSetup],
    tokenizers: Mapping[str, Any],
    host: Host,
    lender: Host,
    member: Member | None,
) -> None:
    """Let `host` have the models that only give rewards: those of a lender, else its own."""
    for role, uses in uses_of(graph).items():
        if uses.reads_tokens or not (member is None or member.keeps(graph.input(role))):
            continue
        if role not in lender.models:
            ranks = member.ranks if member else ALONE
            _load_model(uses, roles[role], tokenizers, tokenizing_role(graph), host, ranks)
            continue
        host.models[role] = lender.models[role]
        if role in lender.readers:
            host.readers[role] = lender.readers[role]


def _load_model(
    uses: Uses,
    setup: RoleSetup,
    tokenizers: Mapping[str, Any],
    tokenizing: str,
    host: Host,
    ranks: Ranks,
) -> None:
    role = uses.role
    host.models[role] = Resident(role, engine := _engine(role, setup, uses, ranks))
    host.room.admit(engine, role, "train" if "train" in uses.kinds else "score")
    own, writer = tokenizers.get(role), tokenizers.get(tokenizing)
    if not uses.reads_tokens and (read := reader_of(role, setup.model.path, own, writer)):
        host.readers[role] = read


def _load_generator(
    uses: Uses, setup: RoleSetup, tokenizer: Any, host: Host, name: str, member: Member | None
) -> Generator:
    """Return the engine that samples from a role; a host has room for it by the name given."""
    replica = member.replica(uses) if member else ALONE
    together = {} if replica == ALONE else {"ranks": replica}
    spec = attrs.evolve(setup.model, device=setup.generator_device or setup.model.device)
    engine = load("generate", setup.generator)
    made: Generator = engine(spec, tokenizer, **together, **setup.generator_options)
    host.room.admit(made, name, "generate")
    return made


def _engine(role: str, setup: RoleSetup, uses: Uses, ranks: Ranks) -> Any:
    together = {} if ranks == ALONE else {"ranks": ranks, "fsdp": setup.fsdp}
    if uses.trains:
        trainer = load("train", setup.trainer)
        return trainer(setup.model, setup.options, head=uses.head, role=role, **together)
    spec = attrs.evolve(setup.model, new_head=uses.learns)
    if not uses.learns and spec.narrow == "none":
        spec = attrs.evolve(spec, narrow="linear")
    return load("score", setup.trainer)(
        spec,
        head=uses.head,
        tokens_per_microbatch=setup.options.tokens_per_microbatch,
        packing=setup.options.packing,
        attention=setup.options.attention,
        compiled=setup.options.compile,
        role=role,
        **together,
    )


def pin_threads(threads: int) -> None:
    """Compute with this many threads: results depend on their number."""
    torch.set_num_threads(threads)
