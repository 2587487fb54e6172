"""Group Relative Policy Optimization (Shao et al. 2024, arXiv:2402.03300).

Left out of the paper: its mean over sequences of token means is a mean over all tokens here, as
DAPO argues for (arXiv:2503.14476, sec. 3.3); one update a batch; no iterated reward model.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def grpo(policy: fl.Model, reference: fl.Model, prompts: fl.Prompts, *, samples=8, clip=0.2, kl_coef=1e-3):
    """Group Relative Policy Optimization (Shao et al. 2024, arXiv:2402.03300)."""
    rollouts = ops.generate(policy, prompts, n=samples)
    rollouts, rewards = ops.score("reward", rollouts)      # f32[prompt, sample]; dropped rows are gone from both
    advantages = ops.group_advantage(rewards)
    anchor = ops.logprobs(reference, rollouts)

    def loss(new):                                         # a nested graph; closes over outer values
        surrogate = ops.clipped_surrogate(new.logprobs, rollouts.logprobs, advantages, clip=clip)
        return ops.token_mean(surrogate + kl_coef * ops.kl(new.logprobs, anchor), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)     # returns the next version
    return policy, stats | {"reward": rewards.mean()}
