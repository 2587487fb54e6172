"""Group reward-Decoupled Normalization Policy Optimization (Liu et al. 2026, arXiv:2601.05242).

Left out of the paper: several updates a batch, as dapo.py has them; rewards that count only where
another is reached.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def gdpo(
    policy: fl.Model, prompts: fl.Prompts, *, rewards=("correct", "format"), weights=(1.0, 1.0), samples=8, clip=0.2
):
    """GRPO with several rewards, each normalised in its group before they are summed."""
    rollouts, scores = ops.score("rewards", ops.generate(policy, prompts, n=samples), names=rewards)
    advantages = ops.gdpo(scores, weights=weights)         # of f32[prompt, sample, reward]

    def loss(new):
        return ops.token_mean(ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
