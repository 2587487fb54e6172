"""REINFORCE Leave-One-Out (Ahmadian et al. 2024, arXiv:2402.14740).

Left out of the paper: nothing of the method; its k is `samples`, its beta is `kl_coef`.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def rloo(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=4, kl_coef=0.03):
    """Reinforce whole answers by their reward, less the KL and the mean of their siblings."""
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=samples))
    anchor = ops.logprobs(reference, rollouts)
    drift = (rollouts.logprobs - anchor).sum(over="token", mask=rollouts.mask)
    advantages = ops.leave_one_out(scores - kl_coef * drift)       # f32[prompt, sample]

    def loss(new):
        return ops.sequence_sum_mean(ops.reinforce(new.logprobs, advantages), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
