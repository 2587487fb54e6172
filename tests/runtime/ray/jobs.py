"""The same program on this process and on Ray's workers, with a tiny model."""

from numbers import Real

import attrs
import torch
from safetensors.torch import load_file

from flowrl.ir.records import flatten
from flowrl.runtime.pools.job import Job, ranked_pools
from flowrl.runtime.pools.ray_executor import RayExecutor
from flowrl.train.edges import edge_planner
from tests.runtime import steps


@attrs.frozen
class Letters:
    """Rewards as a worker opens them: the share of small letters, and the length."""

    columns = None

    def score(self, plan):
        return steps.letters

    def close(self):
        pass


@attrs.frozen
class InMemory:
    """Rows of each data input as a worker opens them."""

    tokenizer: object
    kinds: dict

    def __call__(self, columns):
        return {name: Rows(self.tokenizer, kind) for name, kind in self.kinds.items()}


@attrs.frozen
class Rows:
    """The rows of one input."""

    tokenizer: object
    kind: str
    rows = len(steps.TEXTS)

    def cursor(self):
        return steps.CURSORS[self.kind](self.tokenizer)

    def sentence(self):
        return f"{self.rows} texts"


def executor(lowered, tokenizer, pools, *, rows=4, rewards=Letters, **changes):
    """Return what runs a lowered program on pools, on rows and rewards in memory."""
    tokenizers = dict.fromkeys(lowered.models, tokenizer)
    inputs, roles = lowered.traced.inputs, lowered.models
    given = {
        "name": "run",
        "plan": lowered.plan,
        "source": lowered.graph,
        "inputs": inputs,
        "roles": roles,
        "tokenizers": tokenizers,
        "data": InMemory(tokenizer, {s.name: s.data for s in inputs if s.kind == "data"}),
        "rewards": rewards,
        "ranked": ranked_pools(lowered.graph, roles),
        "plan_edge": edge_planner(roles),
        "rank_timeout": 60,
    }
    job = Job(**given | changes)
    made = RayExecutor(job, pools)
    made.open_rewards()
    made.open_data()
    made.load(rows)
    return made


def run(executor, places, count=5):
    """Return the metrics of each step, without what workers alone compare, and the last carry."""
    carry, metrics = executor.first(), []
    for number in range(count):
        done = executor.step(carry, places, number)
        carry = done.carry
        metrics.append({name: x for name, x in done.metrics.items() if "/weights_" not in name})
    return metrics, carry


def assert_equal(here, there):
    """Assert equal metrics and carried numbers, and equal weights: those of one are files.

    Carried rows stay on workers: what they are shows in the metrics of the steps after.
    """
    (metrics, carry), (found, carried, folder) = here, there
    assert found == metrics
    for role, x in carry.items():
        if all(isinstance(leaf, Real) for leaf in flatten(x)[0]):
            assert carried[role] == x
        elif hasattr(getattr(x, "engine", None), "update"):
            saved = load_file(folder / role / "model.safetensors")
            assert all(torch.equal(saved[n], w) for n, w in x.engine.weights().items())
