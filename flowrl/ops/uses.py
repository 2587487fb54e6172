"""What a graph does with each of its models."""

import attrs

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph, Node
from flowrl.ir.types import ModelType
from flowrl.ops.model import Base, Ema, Generate, Head, ModelOp, Rewards, Update

USES = ("train", "score", "generate")
"""What a model may be used for."""


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
    def runs(self) -> bool:
        """Whether it is run forward or trained: for more than samples."""
        return bool(self.kinds - {"generate"})

    @property
    def sampling(self) -> tuple[Node, ...]:
        """The ops that sample from it, or from a copy of it."""
        return tuple(node for node in self.nodes if isinstance(node.op, Generate))

    @property
    def generates(self) -> bool:
        """Whether it is sampled from."""
        return bool(self.sampling)

    @property
    def kinds(self) -> frozenset[str]:
        """What it is used for: `train`, `score`, `generate`."""
        return frozenset(n.op.use for n in self.nodes if isinstance(n.op, ModelOp))

    @property
    def trains(self) -> bool:
        """Whether it is updated."""
        return any(isinstance(node.op, Update) for node in self.nodes)

    @property
    def learns(self) -> bool:
        """Whether its weights change: it is updated, or averaged with a model that may be."""
        return self.trains or any(isinstance(node.op, Ema) for node in self.nodes)

    @property
    def reads_tokens(self) -> Node | None:
        """The first op that needs the tokens themselves; one reward a sample may be of a text."""
        texts = {n for n in self.nodes if isinstance(n.op, Rewards) and n.op.per == "sample"}
        return next((node for node in self.nodes if node not in texts), None)

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
    return node.op.heads() if isinstance(node.op, ModelOp) else set()


def uses_of(graph: Graph) -> dict[str, Uses]:
    """Return what a graph and those inside it do with each role, none left out.

    What is done with the base under a model's adapter is done with that model.
    """
    found: dict[str, list[Node]] = {}
    over = over_bases(graph)
    for node in graph.walk():
        for role in sorted({over.get(role, role) for role in _roles(node)}):
            found.setdefault(role, []).append(node)
    averaged: dict[str, list[Node]] = {role: [] for role in found}
    for role, nodes in found.items():
        for node in nodes:
            for other in _roles(node) if isinstance(node.op, Ema) else ():
                averaged[role] += found[other]
    return {role: Uses(role, tuple(n), tuple(averaged[role])) for role, n in found.items()}


def over_bases(graph: Graph) -> dict[str, str]:
    """Return the role with an adapter on it, for each role that is read as the base under that."""
    made = ((node.op, _roles(node)) for node in graph.walk())
    return {op.role: role for op, roles in made if isinstance(op, Base) for role in roles}


def _roles(node: Node) -> set[str]:
    """Return the roles of the models that a model op takes."""
    models = [arg.type for arg in node.args if isinstance(arg.type, ModelType)]
    return {model.role for model in models} if isinstance(node.op, ModelOp) else set()


def tokenizing_role(graph: Graph) -> str:
    """Return the role whose tokens the graph's are: one that samples, trains, or any."""
    uses = uses_of(graph)
    sampled = [role for role, its in uses.items() if its.generates]
    trained = [role for role, its in uses.items() if its.trains]
    return next(iter([*sampled, *trained, *uses]), "")
