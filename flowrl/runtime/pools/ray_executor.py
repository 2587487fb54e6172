"""The Ray executor: runs the steps of a plan on pools of Ray's workers."""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from ray import cloudpickle

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph
from flowrl.ir.layout import Layout
from flowrl.ir.plan import Plan, functions_of
from flowrl.ops.uses import uses_of
from flowrl.runtime.pools.channels import RayReplies
from flowrl.runtime.pools.controller import Controller
from flowrl.runtime.pools.job import Group, Job, Setup, edges_of
from flowrl.runtime.pools.lines import Line
from flowrl.runtime.pools.pool_executor import PoolExecutor
from flowrl.runtime.pools.pools import Pools
from flowrl.runtime.ranks.edges import Edge, ends_name, group_name
from flowrl.runtime.ranks.ranks import Ranks
from flowrl.runtime.ranks.way import Leg

log = logging.getLogger(__name__)


class RayExecutor(PoolExecutor):
    """Runs a job on workers that open its data and rewards, and load its models.

    Rewards and data are opened before models are loaded: their errors come cheap.

    Args:
        job: what to run.
        pools: the workers; other plans may be on them.
    """

    def __init__(self, job: Job, pools: Pools) -> None:
        self.job, self.functions = job, functions_of(job.source)
        graph = job.plan.graph(self.functions)
        _check_homes(job.source)
        own = {pool.name: pools[pool.name] for pool in job.plan.pools}
        self.pools = own
        data, replies = self._line("data"), RayReplies()
        controller = Controller(
            job.name, graph, job.source, own, data, replies, job.ranked, drops_of(job.plan, graph)
        )
        super().__init__(controller, graph, job.inputs, loan=job.loan)
        gpus = sorted(job.plan.pools, key=lambda pool: not pool.gpus)
        lines = (line for pool in gpus for line in own[pool.name])
        self.world: dict[Line, int] = {line: rank for rank, line in enumerate(lines)}
        """All workers, in the order of the plan's GPUs; those without any come last."""
        self.columns: Any = None
        """What rows must have to be scored; where it is, once rewards are open."""

    def open_rewards(self) -> None:
        """Import the reward functions.

        Raises:
            RewardError: one can't be found or imported.
        """
        self.columns = self.controller.tell(
            self._line("reward"), (), "open_rewards", self.job.rewards
        )

    def open_data(self, columns: Any = None) -> list[tuple[int, str]]:
        """Read the data; return the rows and a sentence of each input.

        Args:
            columns: those of the executor that has opened the rewards, if it is another.

        Raises:
            FlowrlError: a source or a row can't be used.
        """
        line, job, columns = self.controller.data, self.job, columns or self.columns
        return self.controller.ask(line, "open_data", job.name, job.data, columns)  # type: ignore[no-any-return]

    def load(self, rows_per_step: int) -> None:
        """Load the models, and log what workers do; each step gets so many rows of each data input.

        Raises:
            EngineError: a model can't be loaded.
        """
        self.rows_per_step, job = rows_per_step, self.job
        if job.loan is None:  # else they have joined
            self._join()
        plan, functions, legs = job.plan.to_json(), _packed(self.functions), self._legs()
        alike, asked = {"plan": plan, "functions": functions, **job.terms}, []
        for pool, lines in self.pools.items():
            for line in lines:
                setup = Setup(pool=pool, legs=legs[line], **alike)
                lead = line in self.controller.holders[pool]
                told = job.name, setup, lead
                asked.append(self.controller.tell(line, (), "load", *told, again=True))
        self.controller.instructions.settle()
        said = (line for reply in asked for line in self.controller.instructions.replies.get(reply))
        for line in dict.fromkeys(said):
            log.info(line)

    def _join(self) -> None:
        """Have all workers find each other, if any of them run or move a model together."""
        lines = [*self.world]
        if not self.job.ranked and not any(pool.layouts for pool in self.job.plan.pools):
            return
        address, groups = self.controller.ask(lines[0], "open_store"), self._groups()
        sizes = list(Counter(line.pool for line in lines).items())
        for rank, line in enumerate(lines):
            world = Ranks(rank, len(lines), self.job.rank_timeout)
            self.controller.tell(line, (), "join", address, world, groups, sizes, again=rank > 0)
        self.controller.instructions.settle()

    def _groups(self) -> list[Group]:
        """Return the workers of each pool that run models together, of each replica, of each edge.

        A later plan on the same workers may take other edges than this one.
        """
        made = [
            Group(name, self._ranks(lines))
            for name, lines in self.controller.holders.items()
            if name in self.job.ranked
        ]
        for pool in self.job.plan.pools:
            ranks = self._ranks(self.pools[pool.name])
            replicas = {x.tp: x for x in map(Layout.parse, pool.layouts.values()) if x.tp > 1}
            for size, layout in replicas.items():
                name = group_name(pool.name, layout)
                starts = range(0, len(ranks), size)
                made += [Group(name, ranks[start : start + size]) for start in starts]
        laid = [pool.name for pool in self.job.plan.pools if pool.layouts]
        for src, dst in product(laid, laid):
            both = {*self._ranks(self.controller.holders[src]), *self._ranks(self.pools[dst])}
            made.append(Group(ends_name(src, dst), tuple(sorted(both))))
        return made

    def _legs(self) -> dict[Line, dict[Edge, Leg]]:
        """Return what each worker does on each edge that weights take."""
        legs: dict[Line, dict[Edge, Leg]] = {line: {} for line in self.world}
        for edge in edges_of(self.graph):
            assert self.job.plan_edge, "whoever lays models out knows how they get there"
            sources, targets = self.controller.holders[edge.src], self.pools[edge.dst]
            leg_of = self.job.plan_edge(edge, self._ranks(sources), self._ranks(targets))
            for line in {*sources, *targets}:
                legs[line][edge] = leg_of(self.world[line])
        return legs

    def _ranks(self, lines: Sequence[Line]) -> tuple[int, ...]:
        return tuple(self.world[line] for line in lines)

    def _line(self, claim: str) -> Line:
        plan = self.job.plan
        pool = next((pool for pool in plan.pools if claim in pool.roles), plan.pools[0])
        return self.pools[pool.name][0]


def drops_of(plan: Plan, graph: Graph) -> set[tuple[str, str]]:
    """Return the pools and roles of generators that drop weights while other models work."""
    pools, found = {pool.name: pool for pool in plan.pools}, set()
    for role, uses in uses_of(graph).items():
        for pool in {node.pool for node in uses.sampling}:
            if pools[pool].residency_of(role, "generate") == "drop":
                found.add((pool, role))
    return found


def _check_homes(graph: Graph) -> None:
    """Refuse a model that is run forward away from home: only its weights are sent.

    Raises:
        EngineError: naming the op's line and both pools.
    """
    for role, uses in uses_of(graph).items():
        home = graph.input(role).pool
        for node in uses.nodes:
            if getattr(node.op, "use", "") == "score" and node.pool != home:
                raise EngineError(
                    f"{node.op.name}: `{role}` lives in pool `{home}`; in pool `{node.pool}` it "
                    "can only be sampled from",
                    where=node.loc.excerpt(),
                    hint=f"let the pool that claims `{role}.train` claim `{role}.score` too",
                )


def _packed(functions: Sequence[Callable[..., Any]]) -> bytes:
    """Pickle users' functions with what their files define: workers may not have the files."""
    modules = {sys.modules[f.__module__] for f in functions}
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(functions))
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
