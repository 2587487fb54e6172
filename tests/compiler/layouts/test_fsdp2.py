"""What torch's FSDP2 stores on each rank is what a layout says."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from flowrl.ir.layout import Layout
from tests.compiler.layouts.models import placed, small

SHAPE = small("llama", num_hidden_layers=1, vocab_size=37)
HEAD, DOWN = "lm_head.weight", "model.layers.0.mlp.down_proj.weight"
SIZES = {HEAD: (37, 12), DOWN: (12, 20)}


@contextlib.contextmanager
def rank_of(layout, rank):
    """One rank of a mesh that has no others: shards are cut without messages."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=layout.size)
    sizes = layout.dp, layout.fsdp, layout.tp
    yield init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "fsdp", "tp"))
    dist.destroy_process_group()


def sharded(whole, mesh, tp_dim, layout):
    """What a rank of FSDP2 holds of a matrix that tensor parallelism divides along `tp_dim`."""
    module = nn.Linear(*reversed(whole.shape), bias=False)
    weight = whole
    if layout.tp > 1:
        mine = whole.chunk(layout.tp, tp_dim)[mesh["tp"].get_local_rank()]
        weight = DTensor.from_local(
            mine.contiguous(), mesh["tp"], [Shard(tp_dim)], run_check=False,
            shape=whole.shape, stride=whole.stride(),
        )  # fmt: skip
    module.weight = nn.Parameter(weight)
    along = tp_dim if layout.along_tp else 0
    fully_shard(
        module, mesh=mesh["dp", "fsdp"] if layout.dp > 1 else mesh["fsdp"],
        shard_placement_fn=lambda _: Shard(along),
    )  # fmt: skip
    return module.weight.to_local().detach()


@pytest.mark.parametrize(
    "text",
    ["fsdp5", "fsdp8", "fsdp3 x dp2", "fsdp3 x tp2", "fsdp4 along tp", "fsdp5 along tp x tp2"],
)
@pytest.mark.parametrize(("name", "tp_dim"), [(HEAD, 0), (DOWN, 1)])
def test_a_layout_says_what_fsdp2_stores(text, name, tp_dim):
    layout, sharding = Layout.parse(text), placed(text)
    whole = torch.arange(float(torch.Size(SIZES[name]).numel())).reshape(SIZES[name])

    for rank in range(layout.size):
        with rank_of(layout, rank) as mesh:
            got = sharded(whole, mesh, tp_dim, layout)

        shard = next(s for s in sharding.tensors(rank, SHAPE) if s.tensor == name)
        assert tuple(got.shape) == shard.shape
        for piece in shard.pieces:
            assert torch.equal(got, whole[tuple(slice(*span) for span in piece.box)])
