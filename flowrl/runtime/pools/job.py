"""What is run on workers: a plan, and what opens its rewards, its data and its models."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from flowrl.ir.graph import Graph
from flowrl.ir.plan import Plan
from flowrl.ir.program import Input
from flowrl.ops.move import Reshard
from flowrl.ops.uses import uses_of
from flowrl.runtime.host import ScoreFunction
from flowrl.runtime.ranks.edges import Edge, layout_of
from flowrl.runtime.ranks.way import Leg
from flowrl.runtime.role_setup import RoleSetup
from flowrl.runtime.rows.rows import Cursor


class Rewards(Protocol):
    """Reward functions, ready to be called."""

    @property
    def columns(self) -> Any:
        """What rows must have; for whoever opens the data."""
        ...

    def score(self, plan: str) -> ScoreFunction:
        """Return what calls them for a plan."""
        ...

    def close(self) -> None:
        """End their processes."""
        ...


class Data(Protocol):
    """The rows of one data input."""

    @property
    def rows(self) -> int:
        """How many there are."""
        ...

    def cursor(self) -> Cursor:
        """Return a place in them."""
        ...

    def sentence(self) -> str:
        """Say what was read."""
        ...


@attrs.frozen
class Loan:
    """A model of another plan, in its pool, for a plan that is run on it: an evaluation.

    Attributes:
        plan: the other plan.
        role: of the model in that plan.
        pool: where it is.
        name: of the model in the plan that borrows it.
    """

    plan: str
    role: str
    pool: str
    name: str


@attrs.frozen
class Group:
    """Some of the workers of a run that talk among themselves.

    Attributes:
        name: that of their pool; of a replica of a model in it, `POOL tpN`.
        members: their ranks.
    """

    name: str
    members: tuple[int, ...]


PlanEdge = Callable[[Edge, Sequence[int], Sequence[int]], Callable[[int], Leg]]
"""Plans an edge between the ranks at its start and those at its end: gives what each rank does."""


@attrs.frozen(kw_only=True)
class Terms:
    """What a plan is run with, alike on all workers.

    Attributes:
        roles: what each role loads.
        tokenizers: by role.
        seed: of everything random.
        drop_failed: drop the group of a failed reward; else it scores 0.
        threads: of each worker.
        loan: the model of another plan that this one is run on, instead of its own.
        check_every: how often weights are compared, after a reshard and once they have been sampled
            with; see `Way` and `Comparison`.
    """

    roles: Mapping[str, RoleSetup]
    tokenizers: Mapping[str, Any]
    seed: int = 0
    drop_failed: bool = False
    threads: int = 1
    loan: Loan | None = None
    check_every: int = 1


@attrs.frozen(kw_only=True)
class Setup(Terms):
    """What a worker needs for its part of a plan.

    Attributes:
        plan: as JSON.
        functions: those of users' ops, pickled.
        pool: which part.
        legs: what it does on each edge that weights take from or to it.
    """

    plan: str
    functions: bytes
    pool: str
    legs: Mapping[Edge, Leg] = attrs.field(factory=dict)


def ranked_pools(graph: Graph, roles: Mapping[str, RoleSetup]) -> frozenset[str]:
    """Return the pools of a graph whose workers run a model together: each has all values."""
    homes = {role: graph.input(role) for role, its in uses_of(graph).items() if its.runs}
    return frozenset(
        home.pool for role, home in homes.items() if roles[role].fsdp or layout_of(home).size > 1
    )


def edges_of(graph: Graph) -> frozenset[Edge]:
    """Return the ways that weights take in a graph."""
    return frozenset(Edge.of(node) for node in graph.walk() if isinstance(node.op, Reshard))


@attrs.frozen(eq=False, kw_only=True)
class Job(Terms):
    """A plan, and what it is run with.

    Attributes:
        name: of the plan on the workers.
        plan: what runs.
        source: the plan's graph, with the places of its nodes in the user's files.
        inputs: the program's arguments.
        data: opens each data input, given what rewards need; called by the worker of the data.
        rewards: imports the reward functions; called by the worker of the rewards.
        plan_edge: how weights go from one layout to another.
        ranked: the pools whose workers run models together; all of a pool's have its values.
        rank_timeout: seconds that they wait for one another.
    """

    name: str
    plan: Plan
    source: Graph
    inputs: tuple[Input, ...]
    data: Callable[[Any], Mapping[str, Data]]
    rewards: Callable[[], Rewards]
    plan_edge: PlanEdge | None = None
    ranked: frozenset[str] = frozenset()
    rank_timeout: float = 600.0

    @property
    def terms(self) -> dict[str, Any]:
        """What all workers are given alike, by name."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(Terms)}
