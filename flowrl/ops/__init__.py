"""The operations that a program is written in; `from flowrl import ops`."""

from flowrl.ops.advantage import (
    gae,
    group_advantage,
    leave_one_out,
    token_rewards,
    whiten,
)
from flowrl.ops.custom import op
from flowrl.ops.data import align, record, select
from flowrl.ops.flow import cond, minibatches, sample_until, scan
from flowrl.ops.forward import generate, logprobs, score, values
from flowrl.ops.loss import (
    clip_cov,
    clipped_surrogate,
    clipped_value,
    dpo_loss,
    kl,
)
from flowrl.ops.reduce import (
    count,
    pass_at,
    sequence_mean,
    sequence_sum_mean,
    token_mean,
)
from flowrl.ops.tensor import clip, maximum, minimum, where
from flowrl.ops.train import ema, snapshot, update

__all__ = [
    "align",
    "clip",
    "clip_cov",
    "clipped_surrogate",
    "clipped_value",
    "cond",
    "count",
    "dpo_loss",
    "ema",
    "gae",
    "generate",
    "group_advantage",
    "kl",
    "leave_one_out",
    "logprobs",
    "maximum",
    "minibatches",
    "minimum",
    "op",
    "pass_at",
    "record",
    "sample_until",
    "scan",
    "score",
    "select",
    "sequence_mean",
    "sequence_sum_mean",
    "snapshot",
    "token_mean",
    "token_rewards",
    "update",
    "values",
    "where",
    "whiten",
]
