"""What ops take on pools of workers: the same names as in one process, and the bytes that move."""

import json

import pytest

import flowrl as fl
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.ir.plan import Plan
from flowrl.ir.types import ModelType
from flowrl.ops.control import ControlOp
from flowrl.ops.move import Transfer
from flowrl.ops.names import named_nodes
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps
from tests.runtime.ray import jobs
from tests.runtime.ray.conftest import RANKS

TWO_POOLS = """
[cluster]
executor = "ray"
machines = "2xCPU"
[cluster.pools.train]
roles = ["policy.train", "reference"]
cpus = 0.25
[cluster.pools.rollout]
roles = ["policy.generate"]
cpus = 0.25
"""
RANKED = RANKS.replace("[cluster]", '[cluster]\nmachines = "4xCPU"')
"""Two that train, one that samples: weights are resharded."""

POOLS = (
    Pool("train", 0, ("policy.train", "critic")),
    Pool("rollout", 0, ("policy.generate",)),
    Pool("data", 0, ("data", "reward", "reference")),
)


def stepped(lowered, tokenizer, lines):
    """Return one step on pools of workers."""
    there = jobs.executor(lowered, tokenizer, lines)
    return there.step(there.first(), there.cursors(), 0)


def test_every_op_is_measured_where_it_runs(pools, model_folder, tokenizer):
    traced = fl.trace(ppo, minibatch=2, epochs=2)
    lowered = traced.lower(Cluster(POOLS), steps.roles(traced, model_folder))
    named = list(named_nodes(lowered.graph))

    done = stepped(lowered, tokenizer, pools(train=1, rollout=2, data=1))
    inside = {name: its.times for name, its in done.ops.items() if "/" in name}

    assert list(done.ops) == [name for name, n in named if not isinstance(n.op, ControlOp)]
    assert all(its.seconds > 0 for its in done.ops.values())
    assert set(inside.values()) == {4}


def test_the_bytes_of_a_transfer_are_those_that_arrive(pools, model_folder, tokenizer):
    traced = fl.trace(grpo, samples=2, kl_coef=0.1)
    lowered = traced.lower(Cluster(POOLS), steps.roles(traced, model_folder))
    moves = {name: n for name, n in named_nodes(lowered.graph) if isinstance(n.op, Transfer)}
    here = steps.executor(traced, steps.roles(traced, model_folder), tokenizer)
    weights = sum(w.nbytes for w in here.host.models["policy"].engine.weights().values())

    done = stepped(lowered, tokenizer, pools(train=1, rollout=2, data=1))
    (model,) = (n for n, its in moves.items() if isinstance(its.results[0].type, ModelType))
    tensors = [n for n, its in moves.items() if str(its.results[0].type).startswith("f32")]

    assert done.ops[model].bytes == 2 * weights, "each of two workers that sample has them"
    assert tensors
    assert all(done.ops[name].bytes > 0 for name in tensors)
    assert not any(its.bytes for name, its in done.ops.items() if name not in moves)


@pytest.mark.parametrize("added", [TWO_POOLS, RANKED])
def test_a_run_moves_the_bytes_of_weights_that_its_plan_says(kept, folder, added):
    folder.run("grpo", "train.steps=2", added=added)
    out = folder.path / "out"

    plan = Plan.from_json((out / "plan.json").read_text())
    (edge,) = (edge for edge in plan.forecast["edges"] if edge["ratio"])
    records = [json.loads(line) for line in (out / "ops.jsonl").read_text().splitlines()]
    moved = [record["bytes"] for record in records if record["op"] == edge["name"]]

    assert moved == [edge["bytes"], edge["bytes"]]
    assert edge["bytes"] > 0
