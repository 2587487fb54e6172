"""The count on the fullest rank is that of the shards themselves."""

import math

import pytest

from flowrl.compiler.cost.weights import shard_count
from flowrl.compiler.layouts import Sharding, misfit
from flowrl.compiler.shapes import known_shape
from flowrl.ir.layout import Layout

MODELS = ["smollm2-135m", "qwen2.5-1.5b", "llama-3.1-8b", "mixtral-8x7b"]
LAYOUTS = ["1", "dp2", "fsdp8", "tp4", "tp2 x fsdp4", "pp2", "pp4 x tp2 x dp2", "ep4", "ep2 x tp2"]


def stored(shape, sharding, rank):
    return sum(math.prod(shard.shape) for shard in sharding.tensors(rank, shape))


FITTING = [
    (model, layout)
    for model in MODELS
    for layout in LAYOUTS
    if not misfit(known_shape(model), Layout.parse(layout))
]


@pytest.mark.parametrize(("model", "text"), FITTING)
def test_the_fullest_rank_stores_as_much_as_its_shards(model, text):
    shape, layout = known_shape(model), Layout.parse(text)
    sharding = Sharding(layout, range(layout.size))
    fullest = max(stored(shape, sharding, rank) for rank in range(layout.size))

    assert shard_count(shape, layout) == pytest.approx(fullest, rel=0.02)


def test_one_gpu_stores_each_parameter():
    for model in ("smollm2-135m", "mixtral-8x7b"):
        assert shard_count(known_shape(model), Layout()) == known_shape(model).count
