"""On-Policy RL with Optimal Reward Baseline (Hao et al. 2025, arXiv:2505.23585).

Left out of the paper: nothing; it has neither a KL nor an entropy term, and one update a batch.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def opo(policy: fl.Model, prompts: fl.Prompts, *, samples=8):
    """Reinforce whole answers by their reward, less their group's mean weighted by length."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    advantages = ops.opo(rewards, rollouts.mask)           # f32[prompt, sample]

    def loss(new):
        return ops.sequence_sum_mean(ops.reinforce(new.logprobs, advantages), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
