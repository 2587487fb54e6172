"""REINFORCE++ with a group's mean as baseline (Hu et al. 2025, arXiv:2501.03262).

Left out of the paper: several updates a batch, as ppo.py has them.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def reinforce_pp_baseline(
    policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=8, clip=0.2, kl_coef=0.001
):
    """GRPO whose deviation is that of the batch, and whose KL has the right gradient (k2)."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    advantages = ops.reinforce_plus_plus_baseline(rewards, rollouts.mask)          # f32[prompt, sample, token]
    anchor = ops.logprobs(reference, rollouts)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip)
        return ops.token_mean(surrogate + kl_coef * ops.kl(new.logprobs, anchor, estimator="k2"), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
