"""Ops made of `flowrl.functional`: the right function, with its arguments in the right places."""

import math

import pytest

from flowrl import ops
from tests.ops.evaluated import evaluate

# Rewards are (1, 3) and (5), tokens (1, 2), (3) and (4, 5, 6), of which the second is masked.
FUNCTIONS = {
    "token_mean": (lambda x, r: ops.token_mean(x[3], r.mask), 19 / 5),
    "sequence_mean": (lambda x, r: ops.sequence_mean(x[3], r.mask), (1 + 3 + 5) / 3),
    "sequence_sum_mean": (lambda x, r: ops.sequence_sum_mean(x[3], r.mask), 19 / 3),
    "count": (lambda x, r: ops.count(r.mask), 5.0),
    "pass_at": (lambda x, r: ops.pass_at(x[2] - 2.0, k=1), (0.5 + 1.0) / 2),
    "group_advantage": (
        lambda x, r: ops.group_advantage(x[2], norm_by_std=False),
        [-1.0, 1.0, 0.0],
    ),
    "group_advantage in deviations": (
        lambda x, r: ops.group_advantage(x[2]),
        [-(0.5**0.5), 0.5**0.5, 0.0],
    ),
    "leave_one_out": (lambda x, r: ops.leave_one_out(x[2]), [-2.0, 2.0, 0.0]),
    "token_rewards": (
        lambda x, r: ops.token_rewards(x[2], r.mask),
        [1.0, 0.0, 3.0, 0.0, 0.0, 5.0],
    ),
    "token_rewards with a penalty": (
        lambda x, r: ops.token_rewards(x[2], r.mask, 0.5 * x[3]),
        [0.5, 0.0, 1.5, -2.0, -2.5, 2.0],
    ),
    "gae": (
        lambda x, r: ops.gae(x[3], 0.0 * x[3], r.mask, gamma=0.5, lam=1.0)[1],
        [1.0, 0.0, 3.0, 8.0, 8.0, 6.0],
    ),
    "whiten": (
        lambda x, r: ops.whiten(x[3], r.mask, mode="keep_mean", eps=0.0).sum(mask=r.mask),
        19.0,
    ),
    "clipped_surrogate": (
        lambda x, r: ops.clipped_surrogate(0.0 * x[3], -math.log(2) + 0.0 * x[3], x[2], clip=0.2),
        [-1.2, -1.2, -3.6, -6.0, -6.0, -6.0],
    ),
    "clipped_value": (
        lambda x, r: ops.clipped_value(x[3], x[3], x[2], clip=0.2),
        [0.0, 0.5, 0.0, 0.5, 0.0, 0.5],
    ),
    "kl": (
        lambda x, r: ops.kl(x[3] * 0.0 + 2.0, x[3] * 0.0, estimator="k2"),
        [2.0] * 6,
    ),
}


@pytest.mark.parametrize(("program", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_an_op_is_its_function(program, expected):
    assert evaluate(program) == pytest.approx(expected, rel=1e-5)
