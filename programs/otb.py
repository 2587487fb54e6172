"""REINFORCE with the Optimal Token Baseline (Li et al. 2026, arXiv:2602.07078).

Left out of the paper: nothing; its truncated importance weights are those of `fl.corrected`.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def otb(policy: fl.Model, prompts: fl.Prompts, *, samples=8):
    """Reinforce each token by the return, less the baseline that makes its variance least."""
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=samples))
    rewards, collision = ops.token_rewards(scores, rollouts.mask), ops.collision(policy, rollouts)
    advantages = ops.optimal_token_baseline(rewards, rollouts.mask, rollouts.logprobs, collision)

    def loss(new):
        return ops.sequence_sum_mean(ops.reinforce(new.logprobs, advantages), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
