"""Group Sequence Policy Optimization (Zheng et al. 2025, arXiv:2507.18071).

Left out of the paper: GSPO-token, its form with an advantage for each token.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def gspo(policy: fl.Model, prompts: fl.Prompts, *, samples=8, minibatch=128, clip=3e-4, clip_high=4e-4):
    """GRPO with one ratio a sequence, the geometric mean of its tokens', and one clip."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    batch = ops.record(rollouts, advantages=ops.group_advantage(rewards))

    def body(policy, mb):
        return ops.update(policy, lambda new: ops.sequence_mean(
            ops.sequence_surrogate(new.logprobs, mb.logprobs, mb.advantages, mb.mask, clip=clip, clip_high=clip_high), mb.mask), mb)

    policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=minibatch))
    return policy, stats
