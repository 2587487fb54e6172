"""How wide numbers are in a run, as plans take them to be."""

import pytest

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.simplify import simplify
from flowrl.config.placement.target import target_of
from flowrl.config.traced import trace_run
from flowrl.ops.uses import uses_of
from tests.config.conftest import GRPO

QWEN = GRPO.replace('path = "model"', 'path = "Qwen/Qwen2.5-7B"\ndtype = "{dtype}"')
LORA = "[models.policy.lora]\nrank = 4\n"


def weight_bytes(load, machines, dtype="bfloat16", added=""):
    sets = f'cluster.machines="{machines}"'
    run = load(added, sets, text=QWEN.replace("{dtype}", dtype))
    graph = simplify(trace_run(run).graph, Cluster())
    target = target_of(run, graph)
    settings = {role: target.workload.settings(role) for role in uses_of(graph)}
    return {role: (its.weight_bytes, its.table_bytes) for role, its in settings.items()}


@pytest.mark.parametrize(
    ("machines", "dtype", "added", "found"),
    [
        ("1xH200", "bfloat16", "", (2, 2)),  # the trainer may compute with the engine's weights
        ("8xH100", "bfloat16", "", (2, 4)),
        ("1xH200", "bfloat16", LORA, (2, 4)),
        ("1xH200", "float32", "", (4, 4)),
        ("8xH100", "float64", "", (8, 8)),
    ],
)
def test_a_frozen_model_gives_the_numbers_of_what_is_compared_with_it(
    load, machines, dtype, added, found
):
    weight, table = found

    assert weight_bytes(load, machines, dtype, added) == {
        "policy": (weight, weight),
        "reference": (weight, table),
    }
