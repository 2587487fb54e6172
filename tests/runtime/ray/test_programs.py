"""Every program that comes with flowrl: in one process and on Ray, in one pool and in two.

That its steps are finite and train is in tests/programs/test_steps.py.
"""

import attrs
import pytest

from flowrl.compiler.cluster import Cluster, Pool
from flowrl.config.programs import builtin_programs, load_program
from flowrl.ops.uses import uses_of
from flowrl.stages import Traced, trace
from tests.programs.small import small
from tests.runtime import steps
from tests.runtime.ray import jobs


def one_pool(graph):
    return Cluster()


def two_pools(graph):
    """Train in one pool; sample, and have frozen models, data and rewards in the other.

    A program that trains nothing has its model in one, data and rewards in the other.
    """
    uses = uses_of(graph)
    trained = {role for role, of in uses.items() if of.trains}
    frozen = sorted(uses.keys() - trained) if trained else []
    sampled = [f"{role}.generate" for role in trained if uses[role].generates]
    return Cluster((Pool("train"), Pool("rest", 0, (*sampled, *frozen, "data", "reward"))))


@attrs.frozen(eq=False)
class Expected:
    """A program, the setup of its models, and what two steps in one process give."""

    traced: Traced
    models: dict
    metrics: list
    carry: dict


@pytest.fixture(scope="module", params=builtin_programs())
def expected(request, model_folder, tokenizer):
    program = load_program(request.param)
    traced = trace(program, **small(program))
    models = steps.roles(traced, model_folder, block=4)
    here = steps.executor(traced, models, tokenizer)
    return Expected(traced, models, *jobs.run(here, steps.cursors(traced, tokenizer), 2))


def test_two_pools_in_one_process_give_the_same(expected, tokenizer):
    lowered = expected.traced.lower(two_pools(expected.traced.graph))
    made = steps.executor(expected.traced, expected.models, tokenizer, graph=lowered.graph)

    metrics, carry = jobs.run(made, steps.cursors(expected.traced, tokenizer), 2)

    assert {value.pool for _, value in lowered.graph.inputs} == {"train", "rest"}
    assert metrics == expected.metrics
    wanted = steps.weights(expected.carry)
    assert all(weight.equal(wanted[name]) for name, weight in steps.weights(carry).items())


@pytest.mark.parametrize("split", [one_pool, two_pools])
def test_pools_of_rays_workers_give_the_same(split, expected, tokenizer, pools, tmp_path):
    cluster = split(expected.traced.graph)
    lowered = expected.traced.lower(cluster, expected.models)
    sizes = dict.fromkeys([pool.name for pool in cluster.pools], 1)
    there = jobs.executor(lowered, tokenizer, pools(**sizes))

    metrics, carry = jobs.run(there, there.cursors(), 2)

    there.save(str(tmp_path))
    jobs.assert_equal((expected.metrics, expected.carry), (metrics, carry, tmp_path))
