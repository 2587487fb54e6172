"""Load the models that a graph uses into engines of this process."""

import logging
from collections.abc import Mapping
from typing import Any

import attrs
import torch

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph
from flowrl.ops.uses import Uses, tokenizing_role, uses_of
from flowrl.runtime.engine import Generator, load
from flowrl.runtime.graph.reading import reader_of
from flowrl.runtime.host import Host, Resident
from flowrl.runtime.out_of_memory import out_of_memory_told
from flowrl.runtime.ranks.member import Member
from flowrl.runtime.ranks.ranks import ALONE
from flowrl.runtime.role_setup import RoleSetup

log = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class Loader:
    """Loads what a graph uses into a host.

    Attributes:
        graph: lowered, for a process that has part of it.
        roles: what each role loads.
        tokenizers: by role.
        host: gets the engines.
        member: which part this process has; all of it if not given.
    """

    graph: Graph
    roles: Mapping[str, RoleSetup]
    tokenizers: Mapping[str, Any]
    host: Host
    member: Member = attrs.field(factory=Member)

    @out_of_memory_told()
    def load(self) -> None:
        """Load a trainer or a scorer a role, and generators.

        Raises:
            EngineError: a role isn't set up, or its model can't be loaded or has no room.
        """
        generators = {}
        for role, uses in uses_of(self.graph).items():
            if role not in self.roles:
                raise EngineError(f"the graph uses `{role}`, for which no model is given")
            if self.member.keeps(self.graph.input(role)):
                self._load_model(uses)
            if self.member.samples(uses):
                generators[role] = self._generator(uses, role)
        self._sample_with(generators)
        for role, generator in generators.items():
            if self.roles[role].shares and role in self.host.models:
                self._share(role, generator)

    @out_of_memory_told()
    def borrow(self, lender: Host, lent: Mapping[str, str]) -> None:
        """Load what a lender lacks: generators and judges. The graph trains nothing.

        Args:
            lender: another host of this process. Judges, which only give rewards, have the same
                names there.
            lent: what the lender calls each role that is sampled from.

        Raises:
            EngineError: a model can't be loaded or has no room.
        """
        host = self.host
        host.room, host.loaded, host.shared = lender.room, lender.loaded, lender.shared
        self._borrow_judges(lender)
        generators = {}
        for role, its_name in lent.items():
            uses = uses_of(self.graph)[role]
            if self.member.samples(uses):
                known = lender.generators.get(its_name)
                generators[role] = known or self._generator(uses, its_name)
        self._sample_with(generators)

    def _borrow_judges(self, lender: Host) -> None:
        """Have the models that only give rewards: those of a lender, else own ones."""
        for role, uses in uses_of(self.graph).items():
            if uses.reads_tokens or not self.member.keeps(self.graph.input(role)):
                continue
            if role not in lender.models:
                self._load_model(uses)
                continue
            self.host.models[role] = lender.models[role]
            if role in lender.readers:
                self.host.readers[role] = lender.readers[role]

    def _load_model(self, uses: Uses) -> None:
        role, host = uses.role, self.host
        host.models[role] = Resident(role, engine := self._engine(uses))
        host.room.admit(engine, role, "train" if "train" in uses.kinds else "score")
        own, writer = (self.tokenizers.get(r) for r in (role, tokenizing_role(self.graph)))
        path = self.roles[role].model.path
        if not uses.reads_tokens and (read := reader_of(role, path, own, writer)):
            host.readers[role] = read

    def _engine(self, uses: Uses) -> Any:
        """Return the engine that runs a role forward, and trains it if the graph does."""
        setup, ranks = self.roles[uses.role], self.member.ranks
        together = {} if ranks == ALONE else {"ranks": ranks, "fsdp": setup.fsdp}
        spec, use = setup.model, "train" if uses.trains else "score"
        if not uses.trains:
            spec = attrs.evolve(spec, new_head=uses.learns)
        if not uses.learns and spec.narrow == "none":
            spec = attrs.evolve(spec, narrow="linear")
        engine = load(use, setup.trainer)
        return engine(spec, setup.options, head=uses.head, role=uses.role, **together)

    def _generator(self, uses: Uses, name: str) -> Generator:
        """Return the engine that samples from a role; the host has room for it under `name`."""
        setup, replica = self.roles[uses.role], self.member.replica(uses)
        together = {} if replica == ALONE else {"ranks": replica}
        spec = attrs.evolve(setup.model, device=setup.generator_device or setup.model.device)
        engine, tokenizer = load("generate", setup.generator), self.tokenizers[uses.role]
        made: Generator = engine(spec, tokenizer, **together, **setup.generator_options)
        self.host.room.admit(made, name, "generate")
        return made

    def _sample_with(self, generators: Mapping[str, Generator]) -> None:
        """Have the host sample with these generators, as each role is set up."""
        self.host.generators, self.host.detokenizers = generators, self.tokenizers
        self.host.sampling = {role: setup.sampling for role, setup in self.roles.items()}
        for role, setup in self.roles.items():
            self.host.sequences_per_block[role] = setup.sequences_per_block

    def _share(self, role: str, generator: Generator) -> None:
        """Have a role's trainer compute with its generator's own tensors, if they can be lent."""
        trainer: Any = self.host.models[role].engine
        try:
            trainer.share(generator.lent())
        except EngineError as error:
            log.warning("`%s`: its weights are copied at each update: %s", role, error.problem)
            return
        self.host.shared[generator] = trainer


def pin_threads(threads: int) -> None:
    """Compute with this many threads: results depend on their number."""
    torch.set_num_threads(threads)
