"""GRPO Done Right (Liu et al. 2025, arXiv:2503.20783).

Left out of the paper: several updates a batch, as dapo.py has them.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def dr_grpo(policy: fl.Model, prompts: fl.Prompts, *, samples=8, clip=0.2, horizon=1024):
    """GRPO without its two biases: no deviation under the advantage, no length under the loss."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    advantages = ops.group_advantage(rewards, norm_by_std=False)

    def loss(new):
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip)
        return ops.horizon_mean(surrogate, rollouts.mask, horizon=horizon)     # a constant, such as max_tokens

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
