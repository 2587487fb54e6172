"""Reshard: the exact sends that bring weights from one sharding to another."""

from flowrl.compiler.reshard.buffers import Buffer, buffers
from flowrl.compiler.reshard.cost import reshard_cost
from flowrl.compiler.reshard.pattern import Alias, Copy
from flowrl.compiler.reshard.plan import ReshardPlan, Send, plan_reshard

__all__ = [
    "Alias",
    "Buffer",
    "Copy",
    "ReshardPlan",
    "Send",
    "buffers",
    "plan_reshard",
    "reshard_cost",
]
