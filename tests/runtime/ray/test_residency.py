"""Seats of a pool take turns as the plan says, and what is trained is the same to the bit."""

import attrs
import pytest
import ray
import torch
from safetensors.torch import load_file

import flowrl as fl
from flowrl import ops
from flowrl.compiler.hardware import Machines
from flowrl.compiler.planning import plan_step
from flowrl.compiler.residency import residency
from flowrl.compiler.search import Constraints
from flowrl.compiler.shapes import ModelShape
from flowrl.compiler.target import Target, Workload
from flowrl.ir.layout import Layout
from flowrl.runtime.ranks.ranks import Fsdp2
from programs.grpo import grpo
from programs.ppo import ppo
from tests.compiler.test_residency import unrolled
from tests.runtime import steps
from tests.runtime.ray import inside, jobs


@fl.program
def again(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=2):
    """Sample, have another model work, and sample again with the same weights."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    anchor = ops.logprobs(reference, rollouts)
    _, greedy = ops.score("reward", ops.generate(policy, prompts, temperature=0.0))
    advantages = rewards - ops.align(greedy, to=rollouts).mean(over="sample")

    def loss(new):
        gain = ops.reinforce(new.logprobs, advantages) + ops.kl(new.logprobs, anchor)
        return ops.token_mean(gain, rollouts.mask)

    return ops.update(policy, loss, rollouts)


PROGRAMS = {
    "grpo": (grpo, {"samples": 3, "kl_coef": 0.3}),
    "ppo": (ppo, {"minibatch": 2, "epochs": 2}),
    "again": (again, {}),
}
OPTIONS = attrs.evolve(steps.SMOOTH, tokens_per_microbatch=20, max_grad_norm=0.5)
AWAY = {"generate": "drop", "train": "offload", "score": "offload"}
KEPT = {"generate": "offload", "train": "resident", "score": "offload"}
STAY = dict.fromkeys(AWAY, "resident")


def planned(traced, roles, gpus, kinds):
    """Return the plan of a program in one pool: FSDP to tensor parallelism, if it has several."""
    layouts = {"generate": Layout(tp=gpus), "train": Layout(fsdp=gpus), "score": Layout(fsdp=gpus)}
    shapes = {role: ModelShape.from_folder(its.model.path) for role, its in roles.items()}
    target = Target(Machines.parse(f"{gpus}xH100"), shapes, Workload(prompts=4))

    def decided(seats):
        trained = {seat.role for seat in seats if seat.use == "train"}
        own = [s for s in seats if s.use != "score" or s.role not in trained]
        return Constraints(
            pools=dict.fromkeys(own, "all"),
            gpus={"all": gpus},
            layouts={seat: layouts[seat.use] for seat in own},
            residencies={seat: kinds[seat.use] for seat in own},
        )

    return plan_step(traced.graph, target, decided)


def said(plan):
    """Return what a plan says that seats do in a step."""
    its = residency(plan)
    return [
        (action.seat, action.does.value)
        for task, turn in unrolled(plan.tasks)
        for action in its
        if action.before == task.name and action.turns[0] <= turn < action.turns[1]
    ]


@pytest.fixture
def done(model_folder, tokenizer, pools, tmp_path):
    """Return a function that runs three steps of a plan: metrics, weights, what workers did."""

    def done(name, gpus, kinds):
        program, hyperparameters = PROGRAMS[name]
        traced = fl.trace(program, **hyperparameters)
        given = steps.roles(traced, model_folder, dtype="float64", options=OPTIONS, block=4)
        fsdp = Fsdp2() if gpus > 1 else None
        roles = {role: attrs.evolve(setup, fsdp=fsdp) for role, setup in given.items()}
        plan = planned(traced, roles, gpus, kinds)
        workers = pools(all=gpus, data=1)
        run = jobs.executor(traced.lower(plan.cluster, roles), tokenizer, workers)
        metrics, _ = jobs.run(run, run.cursors(), 3)
        did = ray.get([line.actor.__ray_call__.remote(inside.actions) for line in workers["all"]])
        folder = tmp_path / "-".join(kinds.values())
        weights = {r: load_file(folder / r / "model.safetensors") for r in run.save(str(folder))}
        return metrics, weights, did, said(plan)

    return done


@pytest.mark.parametrize("kinds", [AWAY, KEPT])
@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("name", PROGRAMS)
def test_seats_do_what_the_plan_says_and_change_no_bit(name, gpus, kinds, done):
    metrics, weights, did, said = done(name, gpus, kinds)

    assert did == [said] * gpus
    assert {does for _, does in said} >= {"offload", "load", "wake", "bring"}
    expected, trained, *_ = done(name, gpus, STAY)
    assert metrics == expected
    for role, tensors in weights.items():
        assert all(torch.equal(x, trained[role][n]) for n, x in tensors.items())
