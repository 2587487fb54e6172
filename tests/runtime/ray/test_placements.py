"""A run is what one process does, wherever its models are placed and however they are laid out."""

import attrs
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

import flowrl as fl
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.compiler.hardware import Machines
from flowrl.compiler.planning import plan_step
from flowrl.compiler.search import Constraints
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.target import Target, Workload
from flowrl.config.placement.target import DIVIDED
from flowrl.ir.layout import Layout
from flowrl.runtime.ranks.ranks import Fsdp2
from programs.grpo import grpo
from programs.ppo import ppo
from tests.runtime import steps
from tests.runtime.ray import jobs

DATA = Pool("data", 0, ("data", "reward"))
OPTIONS = attrs.evolve(steps.SMOOTH, tokens_per_microbatch=20, max_grad_norm=0.5)
PROGRAMS = {
    "grpo": (grpo, {"samples": 3, "kl_coef": 0.3}),
    "ppo": (ppo, {"minibatch": 2, "epochs": 2}),
}


def apart(train, generate):
    """Place the trainers of all models on some workers, the policy's generator on others."""
    trainer = {"policy.train": train, "reference": train, "critic": train}
    rollout = Pool("rollout", 0, ("policy.generate",), {"policy.generate": generate})
    return Pool("train", layouts=trainer), rollout, DATA


def together(train, generate):
    """Place all models on the same workers."""
    layouts = {"policy": train, "reference": train, "critic": train, "policy.generate": generate}
    return Pool("all", layouts=layouts), DATA


PLACEMENTS = {
    "whole, in one pool": (together("1", "1"), {"all": 1}),
    "whole, two replicas": (apart("1", "dp2"), {"train": 1, "rollout": 2}),
    "fsdp2 to tp2": (apart("fsdp2", "tp2"), {"train": 2, "rollout": 2}),
    "fsdp2 to dp2": (apart("fsdp2", "dp2"), {"train": 2, "rollout": 2}),
    "fsdp2 to tp2, one pool": (together("fsdp2", "tp2"), {"all": 2}),
    "fsdp4 to tp2 x dp2, one pool": (together("fsdp4", "tp2 x dp2"), {"all": 4}),
    "dp2 x fsdp2 to dp4, one pool": (together("dp2 x fsdp2", "dp4"), {"all": 4}),
    "whole to tp2": (apart("1", "tp2"), {"train": 1, "rollout": 2}),
    "dp2 to tp2": (apart("dp2", "tp2"), {"train": 2, "rollout": 2}),
}
EXACT = {"whole, in one pool", "whole, two replicas"}
"""Where only a generator's replicas move, weights are the same to the last bit."""


@pytest.fixture(scope="module")
def alone(model_folder, tokenizer):
    """Return a function that runs three steps of a program in this process, once."""
    done = {}

    def alone(name):
        if name not in done:
            traced, roles = traced_roles(name, model_folder)
            here = steps.executor(traced, roles, tokenizer, rows=4)
            done[name] = jobs.run(here, steps.cursors(traced, tokenizer), 3)
        return done[name]

    return alone


def fsdp_of(layouts, role):
    uses = (f"{role}.train", f"{role}.score", role)
    layout = Layout.parse(next(layouts[use] for use in uses if use in layouts))
    return Fsdp2(replicas=layout.dp) if layout.fsdp > 1 else None


def traced_roles(name, model_folder):
    program, hyperparameters = PROGRAMS[name]
    traced = fl.trace(program, **hyperparameters)
    roles = steps.roles(traced, model_folder, dtype="float64", options=OPTIONS, block=4)
    return traced, roles


@pytest.fixture
def assert_same(alone, model_folder, tokenizer, pools, tmp_path):
    """Return a function that asserts that a placement of a program changes nothing."""

    def assert_same(name, split, workers, tolerance):
        traced, roles = traced_roles(name, model_folder)
        layouts = {role: text for pool in split for role, text in pool.layouts.items()}
        divided = {
            role: attrs.evolve(setup, fsdp=fsdp_of(layouts, role)) for role, setup in roles.items()
        }
        lowered = traced.lower(Cluster(split), divided)
        there = jobs.executor(lowered, tokenizer, pools(**workers))
        found, _ = jobs.run(there, there.cursors(), 3)
        trained = there.save(str(tmp_path))

        metrics, carry = alone(name)
        for step, expected in zip(found, metrics, strict=True):
            assert step == pytest.approx(expected, rel=tolerance, abs=tolerance)
        for role in trained:
            weights = load_file(tmp_path / role / "model.safetensors")
            assert_close(weights, dict(carry[role].engine.weights()), rtol=0, atol=tolerance)

    return assert_same


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_those_of_one_process_however_models_are_placed(name, placement, assert_same):
    split, workers = PLACEMENTS[placement]

    assert_same(name, split, workers | {"data": 1}, 0 if placement in EXACT else 1e-10)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_placement_that_the_planner_finds_best_is_one_of_them(name, model_folder, assert_same):
    traced, roles = traced_roles(name, model_folder)
    shapes = {role: ModelShape.from_folder(its.model.path) for role, its in roles.items()}
    target = Target(Machines.parse("4xH100"), shapes, Workload(prompts=4))

    planned = plan_step(traced.graph, target, lambda seats: Constraints(axes=DIVIDED))

    pools = planned.cluster.pools
    assert sum(pool.gpus for pool in pools) > 1
    assert_same(name, pools, {pool.name: pool.gpus or 1 for pool in pools}, 1e-10)
