"""What becomes of weights while others work, held against the program."""

import pytest
from inline_snapshot import snapshot

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.checks.program import check_run
from flowrl.config.checks.residency import check_residencies
from flowrl.config.placement.cluster import cluster_of
from flowrl.config.planned import plan_run
from flowrl.config.traced import trace_run
from flowrl.errors import RunFileError
from tests.config.conftest import GRPO

MACHINES = """
[cluster]
machines = "2x1xH100"
[cluster.pools.main]
gpus = 1
roles = ["policy", "reference"]
residencies = { "policy.generate" = "alias" }
"""
QWEN = (
    *(f"models.{role}.path=Qwen/Qwen2.5-0.5B" for role in ("policy", "reference")),
    'reward={reward="reward.py:exact"}',
)
POOL = """
[cluster.pools.main]
roles = ["policy", "reference"]
residencies = {residencies}
"""


def checked(run):
    graph = trace_run(run).graph
    check_residencies(run, graph, cluster_of(run, graph))


@pytest.mark.parametrize(
    "residencies",
    ['{ policy = "drop", "policy.train" = "offload", reference = "offload" }', "{}"],
)
def test_weights_that_are_let_go_and_trained_in_another_use_come_again(residencies, load):
    checked(load(POOL.replace("{residencies}", residencies)))


def test_weights_that_nothing_brings_again_are_not_let_go(load):
    with pytest.raises(RunFileError) as error:
        checked(load(POOL.replace("{residencies}", '{ reference = "drop" }')))

    assert str(error.value) == snapshot("""\
`reference.score` has the residency `drop`, but no other use of `reference` trains the weights, so nothing would bring them back
  run.toml:23
   23 | residencies = { reference = "drop" }
                        ^^^^^^^^^
help: let it be `resident`, or go to host memory with `offload`\
""")


def test_a_plan_keeps_an_alias_that_is_one(load):
    plan = plan_run(load(MACHINES, *QWEN))[1]

    assert {str(seat): its.residency for seat, its in plan.found.seats.items()} == {
        "policy.generate": "alias",
        "reference.score": "resident",
        "policy.train": "resident",
    }


PARTED = """
[cluster.pools.trains]
gpus = 1
roles = ["policy.train", "reference"]
[cluster.pools.samples]
gpus = 1
roles = ["policy.generate"]
residencies = { "policy.generate" = "alias" }
"""


def test_an_alias_that_a_plan_can_not_keep_is_refused_by_its_key(load):
    with pytest.raises(RunFileError) as error:
        plan_run(load('[cluster]\nmachines = "2x1xH100"\n' + PARTED, *QWEN))

    assert str(error.value) == snapshot("""\
`policy.generate` can't have the residency `alias`: pool `trains` trains it, pool `samples` samples from it
  run.toml:29
   29 | residencies = { "policy.generate" = "alias" }
                         ^^^^^^^^^^^^^^^
help: leave it out, and `flowrl plan` chooses one\
""")


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        (
            ["cluster.pools.main.gpus=2", "cluster.pools.main.workers=2"],
            "pool `main` has 2 GPUs",
        ),
        (
            [
                "cluster.pools.main.gpus=0",
                "cluster.pools.main.workers=2",
                "cluster.pools.main.layouts.'policy.generate'=dp2",
            ],
            "the layout of `policy.generate` is `dp2`",
        ),
        (
            ["cluster.pools.main.residencies.'policy.train'=offload"],
            "`policy.train` is `offload`",
        ),
    ],
)
def test_what_keeps_an_alias_from_being_planned_is_said(sets, why, load):
    run = load(MACHINES, *QWEN, *sets)

    with pytest.raises(RunFileError) as error:
        plan_run(run)

    assert error.value.problem == f"`policy.generate` can't have the residency `alias`: {why}"


APART = """
[cluster]
executor = "ray"
[cluster.pools.a]
roles = ["policy.train", "reference"]
[cluster.pools.b]
roles = ["policy.generate"]
residencies = { "policy.generate" = "alias" }
"""


def check(run):
    traced = trace_run(run)
    check_run(run, simplify(traced.graph, Cluster()), traced.program.inputs)


def test_an_alias_in_another_pool_is_refused_before_it_is_planned(load):
    text = GRPO.replace("exact =", "reward =")

    with pytest.raises(RunFileError) as error:
        check(load(APART, text=text))

    assert str(error.value) == snapshot("""\
`policy.generate` can't have the residency `alias`: pool `a` trains it, pool `b` samples from it
  run.toml:27
   27 | residencies = { "policy.generate" = "alias" }
                         ^^^^^^^^^^^^^^^
help: leave it out, and `flowrl plan` chooses one\
""")


def test_an_engine_that_only_evaluations_use_has_no_alias(load):
    text = GRPO.replace("exact =", "reward =").replace('"grpo"\nsamples = 4', '"dpo"')
    pool = '[eval]\n[cluster]\nexecutor = "ray"\n' + MACHINES.partition('H100"\n')[2]

    with pytest.raises(RunFileError) as error:
        check(load(pool, text=text))

    assert str(error.value) == snapshot("""\
`policy.generate` can't have the residency `alias`: only evaluations sample from it, and their engine has weights of its own
  run.toml:25
   25 | residencies = { "policy.generate" = "alias" }
                         ^^^^^^^^^^^^^^^
help: leave it out, or let it be `offload` or `drop`\
""")
