"""What passes through the controller is small: instructions, numbers, addresses."""

from collections import defaultdict

import attrs
import pytest
import ray
from ray._private.worker import global_worker

import flowrl as fl
from flowrl.compiler.cluster import Cluster, Pool
from flowrl.runtime.ranks.ranks import Fsdp2
from programs.grpo import grpo
from programs.pf_ppo import pf_ppo
from programs.ppo import ppo
from tests.runtime import steps
from tests.runtime.ray import inside, jobs

AT_START = {"load", "open_data", "open_rewards"}
POOLS = (
    Pool("train", 0, ("policy.train", "critic")),
    Pool("rollout", 0, ("policy.generate",)),
    Pool("reference", 0, ("reference",)),
    Pool("data", 0, ("data", "reward")),
)
LONG = "a long prompt, " * 4


@pytest.mark.parametrize(
    ("program", "hyperparameters", "ranks"),
    [
        (grpo, {"samples": 8, "kl_coef": 0.1}, 1),
        (grpo, {"samples": 8, "kl_coef": 0.1}, 2),
        (ppo, {"minibatch": 4, "epochs": 3}, 1),
        (pf_ppo, {"minibatch": 32, "capacity": 64}, 1),
    ],
)
def test_no_message_of_five_steps_is_over_4_kilobytes(
    program, hyperparameters, ranks, pools, model_folder, tokenizer
):
    sizes = defaultdict(int)

    def measure(name, message):
        size = global_worker.get_serialization_context().serialize(message).total_bytes
        sizes[name] = max(sizes[name], size)

    traced = fl.trace(program, **hyperparameters)
    roles = steps.roles(traced, model_folder)
    if ranks > 1:
        roles["policy"] = attrs.evolve(roles["policy"], fsdp=Fsdp2())
    lowered = traced.lower(Cluster(POOLS), roles)
    lines = pools(measure, train=ranks, rollout=3 - ranks, reference=1, data=1)
    there = jobs.executor(lowered, tokenizer, lines, rows=32)
    carry, places = there.first(), there.cursors()
    for number in range(5):
        carry = there.step(carry, places, number).carry

    small = {name: size for name, size in sizes.items() if name.removesuffix("()") not in AT_START}
    assert max(small.values()) <= 4096, small
    assert {
        "evaluate()",
        "receive()",
        "send returned",
        "numbers returned",
        "sample returned" if ranks == 1 else "attend()",
    } <= set(small)


@pytest.mark.parametrize(
    ("program", "hyperparameters", "most"),
    [
        (ppo, {"minibatch": 2}, 8),  # three models, two of them at two versions or places
        (pf_ppo, {"minibatch": 2, "capacity": 4}, 8 + 10),  # and the fields of the buffer
    ],
)
def test_a_value_that_nothing_reads_any_more_is_forgotten(
    program, hyperparameters, most, pools, model_folder, tokenizer
):
    traced = fl.trace(program, **hyperparameters)
    lowered = traced.lower(Cluster(POOLS), steps.roles(traced, model_folder))
    there = jobs.executor(lowered, tokenizer, pools(train=1, rollout=1, reference=1, data=1))
    carry, places, kept = there.first(), there.cursors(), []

    for number in range(3):
        carry = there.step(carry, places, number).carry
        for lines in there.pools.values():
            there.controller.ask(lines[0], "place")  # any call tells a worker what is dead
        actors = [lines[0].actor for lines in there.pools.values()]
        kept.append(ray.get([actor.__ray_call__.remote(inside.held) for actor in actors]))

    assert kept[1] == kept[2]
    assert sum(kept[2]) <= most
