"""Direct Preference Optimization (Rafailov et al. 2023, arXiv:2305.18290)."""

import math

import flowrl as fl
from flowrl import ops


@fl.program
def dpo(policy: fl.Model, reference: fl.Model, pairs: fl.Pairs, *, beta=0.1):
    """Prefer the chosen answer of each pair to the rejected one, relative to the reference."""
    anchor = ops.logprobs(reference, pairs)

    def loss(new):                                         # the pair couples two sequences: two passes
        ratios = (new.logprobs - anchor).sum(over="token", mask=pairs.mask)
        losses = ops.dpo_loss(ratios, beta=beta)           # f32[prompt]
        return losses.mean(), {"accuracy": (losses < math.log(2)).float().mean()}

    policy, stats = ops.update(policy, loss, pairs)
    return policy, stats
