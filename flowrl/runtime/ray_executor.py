"""The Ray executor: runs the steps of a plan on pools of Ray's workers."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ray import cloudpickle

from flowrl.errors import EngineError
from flowrl.ir.graph import Graph
from flowrl.ir.plan import functions_of
from flowrl.ops.uses import uses_of
from flowrl.runtime.channels import RayReplies
from flowrl.runtime.controller import Controller
from flowrl.runtime.job import Job, Setup
from flowrl.runtime.lines import Line
from flowrl.runtime.pool_executor import PoolExecutor
from flowrl.runtime.pools import Pools


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
        controller = Controller(job.name, graph, job.source, own, data, replies, job.ranked)
        super().__init__(controller, graph, job.inputs, loan=job.loan)
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
        """Load the models; each step gets so many rows of each data input.

        Raises:
            EngineError: a model can't be loaded.
        """
        self.rows_per_step, job = rows_per_step, self.job
        if job.loan is None:  # else they have joined
            self._join()
        plan, functions = job.plan.to_json(), _packed(self.functions)
        given = job.roles, job.tokenizers, job.seed, job.drop_failed, job.threads, job.loan
        for pool, lines in self.pools.items():
            for line in lines:
                setup = Setup(plan, functions, pool, *given)
                lead = line in self.controller.holders[pool]
                self.controller.tell(line, (), "load", job.name, setup, lead, again=True)
        self.controller.instructions.settle()

    def _join(self) -> None:
        """Have the workers of each pool that run models together find each other."""
        for lines in self.controller.holders.values():
            if len(lines) > 1:
                address = self.controller.ask(lines[0], "open_store")
                for index, line in enumerate(lines):
                    place = address, index, len(lines), self.job.rank_timeout
                    self.controller.tell(line, (), "join", *place, again=index > 0)
        self.controller.instructions.settle()

    def _line(self, claim: str) -> Line:
        plan = self.job.plan
        pool = next((pool for pool in plan.pools if claim in pool.roles), plan.pools[0])
        return self.pools[pool.name][0]


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
