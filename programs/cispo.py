"""Clipped Importance Sampling Policy Optimization (MiniMax-M1, 2025, arXiv:2506.13585).

Left out of the paper: dynamic sampling and the length penalty that it takes from DAPO (dapo.py).
"""

import flowrl as fl
from flowrl import ops


@fl.program
def cispo(policy: fl.Model, prompts: fl.Prompts, *, samples=16, minibatch=128, clip_high=4.0):
    """Reinforce every token, by a ratio that is clipped and held constant."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    batch = ops.record(rollouts, advantages=ops.group_advantage(rewards))

    def body(policy, mb):
        return ops.update(policy, lambda new: ops.token_mean(
            ops.cispo(new.logprobs, mb.logprobs, mb.advantages, clip_high=clip_high), mb.mask), mb)

    policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=minibatch))
    return policy, stats
