"""KL-Cov, against the collapse of entropy (Cui et al. 2025, arXiv:2505.22617).

Left out of the paper: the filter of groups without a signal (dapo.py has it). The first update
of a batch has no KL to penalise: it needs several.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def kl_cov(policy: fl.Model, prompts: fl.Prompts, *, samples=8, minibatch=128, fraction=2e-3, beta=1.0):
    """GRPO, unclipped, with a KL to the old policy at the few tokens of highest covariance."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    batch = ops.record(rollouts, advantages=ops.group_advantage(rewards))

    def body(policy, mb):                                  # the choice looks at the whole minibatch: two passes
        return ops.update(policy, lambda new: ops.token_mean(ops.kl_cov(
            new.logprobs, mb.logprobs, mb.advantages, mb.mask, fraction=fraction, beta=beta), mb.mask), mb)

    policy, stats = ops.scan(body, policy, ops.minibatches(batch, sequences=minibatch))
    return policy, stats
