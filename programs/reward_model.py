"""Reward-model training by Bradley-Terry (Ouyang et al. 2022, arXiv:2203.02155, eq. 1).

Left out of the paper: rankings of more than two answers, which it trains as all their pairs.
"""

import math

import flowrl as fl
from flowrl import ops


@fl.program
def reward_model(model: fl.Model, pairs: fl.Pairs, *, margin=0.0):
    """Give the chosen answer of each pair a higher reward than the rejected one."""
    def loss(new):                                         # the pair couples two sequences: two passes
        losses = ops.bradley_terry(new.rewards, margin=margin)         # f32[prompt]
        right = losses < math.log1p(math.exp(margin))                  # chosen > rejected
        return losses.mean(), {"accuracy": right.float().mean()}

    model, stats = ops.update(model, loss, pairs)
    return model, stats
