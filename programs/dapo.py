"""Decoupled Clip and Dynamic Sampling Policy Optimization (Yu et al. 2025, arXiv:2503.14476).

A batch has `groups` groups; None: as many as a step reads prompts, 512 in the paper. Of those that the last round
has over, `left_over` at most begin the next. Left out of the paper: masking of truncated samples (an ablation).
"""

import flowrl as fl
from flowrl import ops


@fl.program
def dapo(
    policy: fl.Model, prompts: fl.Prompts, surplus: fl.Carry = fl.Carry(fl.Buffer()),
    *, groups: int | None = None, samples=16, rounds=10, left_over=0, minibatch=512, clip=0.2, clip_high=0.28, overlong=(),
):
    """GRPO on groups that all have a signal, over tokens, clipped higher; `overlong` is (max_len, cache_len)."""
    def draw(prompts):
        return ops.score("reward", ops.generate(policy, prompts, n=samples))

    (rollouts, rewards), surplus, drawn = ops.sample_until(
        draw, lambda drawn: ops.has_signal(drawn[1]), prompts,
        groups=groups, rounds=rounds, surplus=surplus, capacity=left_over)
    if overlong:                                           # soft overlong punishment, in tokens
        max_len, cache_len = overlong
        rewards = rewards + ops.overlong_penalty(ops.token_counts(rollouts.mask), max_len=max_len, cache_len=cache_len)
    batch = ops.record(rollouts, advantages=ops.group_advantage(rewards))

    def body(policy, mb):
        return ops.update(policy, lambda new: ops.token_mean(
            ops.clipped_surrogate(new.logprobs, mb.logprobs, mb.advantages, clip=clip, clip_high=clip_high), mb.mask), mb)

    policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=minibatch))
    return policy, surplus, stats | {"drawn": drawn.float()}
