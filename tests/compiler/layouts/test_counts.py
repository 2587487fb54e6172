"""The memory model's count of a rank's numbers against what layouts store."""

import math

import pytest

from flowrl.compiler.cost.weights import shard_count
from flowrl.compiler.shapes.known import known_shape
from flowrl.ir.layout import Layout
from tests.compiler.layouts.models import placed


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("qwen2.5-7b", "fsdp8"),
        ("qwen2.5-7b", "tp4 x dp2"),
        ("qwen2.5-0.5b", "pp2"),
        ("llama-2-7b", "pp4 x tp2 x fsdp2"),
        ("llama-3.1-70b", "pp3 x tp8"),
        ("llama-3.1-8b", "fsdp2 x tp8"),
        ("llama-3.1-8b", "tp16"),
        ("qwen3-30b-a3b", "ep8"),
        ("qwen3-30b-a3b", "tp4+ep x dp2"),
    ],
)
def test_the_fullest_rank_stores_what_the_memory_model_counts(name, layout):
    shape, sharding = known_shape(name), placed(layout)

    stored = [sharding.tensors(rank, shape) for rank in sharding.ranks]

    fullest = max(sum(math.prod(shard.shape) for shard in shards) for shards in stored)
    assert shard_count(shape, Layout.parse(layout)) == pytest.approx(fullest, rel=1e-5)
