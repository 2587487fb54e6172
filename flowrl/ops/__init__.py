"""The operations that a program is written in; `from flowrl import ops`."""

from flowrl.ops.advantage import (
    gdpo,
    group_advantage,
    leave_one_out,
    opo,
    optimal_token_baseline,
    reinforce_plus_plus_baseline,
)
from flowrl.ops.buffer import append
from flowrl.ops.covariance import clip_cov, kl_cov
from flowrl.ops.custom import op
from flowrl.ops.data import align, record, select
from flowrl.ops.divergence import adaptive_kl, kl
from flowrl.ops.division import microbatches, minibatches
from flowrl.ops.flow import cond, scan
from flowrl.ops.forward import bootstrap_values, collision, generate, logprobs, score, values
from flowrl.ops.importance import importance_weights
from flowrl.ops.loss import binary_cross_entropy, bradley_terry, clipped_value, dpo_loss
from flowrl.ops.metrics import (
    watch_gap,
    watch_kl,
    watch_lengths,
    watch_rewards,
    watch_values,
    watch_weights,
)
from flowrl.ops.reduce import (
    aggregate,
    count,
    horizon_mean,
    pass_at,
    sequence_mean,
    sequence_sum_mean,
    token_counts,
    token_mean,
)
from flowrl.ops.returns import (
    discounted_returns,
    gae,
    reinforce_plus_plus,
    remax,
    token_rewards,
    whiten,
)
from flowrl.ops.reward import (
    combine_rewards,
    has_signal,
    overlong_penalty,
    policy_filter,
    usable,
)
from flowrl.ops.surrogate import cispo, clipped_surrogate, decoupled, reinforce, sequence_surrogate
from flowrl.ops.tensor import clip, maximum, minimum, where
from flowrl.ops.train import ema, snapshot, update
from flowrl.ops.until import sample_until

__all__ = [
    "adaptive_kl",
    "aggregate",
    "align",
    "append",
    "binary_cross_entropy",
    "bootstrap_values",
    "bradley_terry",
    "cispo",
    "clip",
    "clip_cov",
    "clipped_surrogate",
    "clipped_value",
    "collision",
    "combine_rewards",
    "cond",
    "count",
    "decoupled",
    "discounted_returns",
    "dpo_loss",
    "ema",
    "gae",
    "gdpo",
    "generate",
    "group_advantage",
    "has_signal",
    "horizon_mean",
    "importance_weights",
    "kl",
    "kl_cov",
    "leave_one_out",
    "logprobs",
    "maximum",
    "microbatches",
    "minibatches",
    "minimum",
    "op",
    "opo",
    "optimal_token_baseline",
    "overlong_penalty",
    "pass_at",
    "policy_filter",
    "record",
    "reinforce",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "remax",
    "sample_until",
    "scan",
    "score",
    "select",
    "sequence_mean",
    "sequence_sum_mean",
    "sequence_surrogate",
    "snapshot",
    "token_counts",
    "token_mean",
    "token_rewards",
    "update",
    "usable",
    "values",
    "watch_gap",
    "watch_kl",
    "watch_lengths",
    "watch_rewards",
    "watch_values",
    "watch_weights",
    "where",
    "whiten",
]
