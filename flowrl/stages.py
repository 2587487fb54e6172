"""The stages of a program: traced, lowered, compiled. Each prints; each can be stopped at."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.emit import emit
from flowrl.compiler.pipeline import compile_graph
from flowrl.ir.graph import Graph
from flowrl.ir.plan import Plan
from flowrl.ir.printer import text
from flowrl.ir.program import Program, Trace

if TYPE_CHECKING:
    from flowrl.runtime.executor import LocalExecutor
    from flowrl.runtime.host import ScoreFunction
    from flowrl.runtime.role_setup import RoleSetup


@attrs.frozen(eq=False)
class Traced(Trace):
    """A program as a typed graph."""

    def as_text(self) -> str:
        """Return the graph as text; `docs/ir.md` has the grammar."""
        return text(self.graph)

    def lower(
        self,
        cluster: Cluster | None = None,
        models: "Mapping[str, RoleSetup] | None" = None,
        watch: Callable[[str, Graph], None] | None = None,
    ) -> "Lowered":
        """Compile the graph for a cluster.

        Args:
            cluster: the pools; one for everything by default.
            models: what each role loads; needed to run, not to look.
            watch: is shown the graph after each pass, by the pass's name.

        Raises:
            ProgramError: the graph cannot be compiled.
        """
        cluster = cluster or Cluster()
        graph = compile_graph(self.graph, cluster, watch)
        return Lowered(self, cluster, graph, emit(graph, cluster, self.sampling), models or {})


@attrs.frozen(eq=False)
class Lowered:
    """A program as a plan: each op in a pool, each transfer an op."""

    traced: Traced
    cluster: Cluster
    graph: Graph
    plan: Plan
    models: "Mapping[str, RoleSetup]"

    def as_text(self) -> str:
        """Return the lowered graph as text."""
        return text(self.graph)

    def compile(
        self,
        *,
        rows_per_step: int,
        tokenizers: Mapping[str, Any] | None = None,
        score: "ScoreFunction | None" = None,
        drop_failed: bool = False,
        seed: int = 0,
        threads: int = 1,
        check_every: int = 0,
    ) -> "Compiled":
        """Load the models and return what runs.

        Args:
            rows_per_step: rows of the data that a step reads of each data input.
            tokenizers: by role; those of the models' folders for what is missing.
            score: calls reward functions; see `flowrl.rewards.scoring`.
            drop_failed: drop the group of a failed reward; else it scores 0.
            seed: of everything random.
            threads: CPU threads to compute with.
            check_every: how often weights that are sampled with are compared with those that train:
                each version at 1, never at 0.

        Raises:
            EngineError: a model is missing or can't be loaded.
        """
        from flowrl.runtime.executor import LocalExecutor
        from flowrl.runtime.host import Host
        from flowrl.runtime.loading import Loader, pin_threads
        from flowrl.runtime.model.comparison import Comparison

        pin_threads(threads)
        comparison = Comparison(check_every)
        host = Host(seed=seed, score=score, drop_failed=drop_failed, comparison=comparison)
        Loader(self.graph, self.models, tokenizers or {}, host).load()
        executor = LocalExecutor(self.graph, self.traced.inputs, host, rows_per_step)
        return Compiled(self, executor)


@attrs.frozen(eq=False)
class Compiled:
    """A program that runs: a step is `(carry, data, key) -> (carry, metrics)`."""

    lowered: Lowered
    executor: "LocalExecutor"

    def as_text(self) -> str:
        """Return what runs, as text."""
        return self.lowered.as_text()

    def first(self) -> dict[str, Any]:
        """Return the carry before the first step: the models and the first carried values."""
        return self.executor.first()

    def __call__(
        self, carry: dict[str, Any], data: Mapping[str, Any], key: int
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Run one step; `key` is its number, which with the run's seed sets all randomness."""
        done = self.executor.step(carry, data, key)
        return done.carry, done.metrics


def trace(
    program: Program,
    sampling: Mapping[str, Mapping[str, Any]] | None = None,
    reward_models: Collection[str] = (),
    /,
    **hyperparameters: Any,
) -> Traced:
    """Return the typed graph of a program.

    Args:
        program: a function decorated with `@fl.program`.
        sampling: for a role, `temperature`, `top_p`, `top_k` and `min_tokens` where the program is
            silent.
        reward_models: the names of rewards that models give, each a role of its name.
        hyperparameters: keyword-only arguments of the program; the others keep their defaults.

    Raises:
        ProgramError: the program breaks a rule of the language.
    """
    made = program.trace(hyperparameters, sampling, reward_models)
    return Traced(**attrs.asdict(made, recurse=False))
