"""REINFORCE++ (Hu et al. 2025, arXiv:2501.03262); its baseline form is reinforce_pp_baseline.py.

Left out of the paper: several updates a batch, as ppo.py has them; the clipping of rewards.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def reinforce_pp(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=1, gamma=1.0, clip=0.2, kl_coef=0.01):
    """PPO without a critic: the return itself, with the KL in it, whitened over the batch."""
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=samples))
    anchor = ops.logprobs(reference, rollouts)
    rewards = ops.token_rewards(scores, rollouts.mask, kl_coef * (rollouts.logprobs - anchor))
    advantages = ops.reinforce_plus_plus(rewards, rollouts.mask, gamma=gamma)      # f32[prompt, sample, token]

    def loss(new):
        return ops.token_mean(ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
