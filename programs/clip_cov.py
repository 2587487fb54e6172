"""Clip-Cov, against the collapse of entropy (Cui et al. 2025, arXiv:2505.22617).

Left out of the paper: the filter of groups without a signal (dapo.py has it).
"""

import flowrl as fl
from flowrl import ops


@fl.program
def clip_cov(
    policy: fl.Model, prompts: fl.Prompts, *, samples=8, minibatch=128, clip=0.2, fraction=2e-4, low=1.0, high=5.0
):
    """GRPO without gradient at a few tokens whose likelihood and advantage are both high, or low."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    batch = ops.record(rollouts, advantages=ops.group_advantage(rewards))

    def body(policy, mb):                                  # the draw looks at the whole minibatch: two passes
        return ops.update(policy, lambda new: ops.token_mean(ops.clip_cov(
            new.logprobs, mb.logprobs, mb.advantages, mb.mask, clip=clip, fraction=fraction, low=low, high=high), mb.mask), mb)

    policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=minibatch))
    return policy, stats
