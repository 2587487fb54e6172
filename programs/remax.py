"""ReMax (Li et al. 2023, arXiv:2310.10505).

Left out of the paper: the KL to a reference among the rewards, which its algorithm 1 lacks too.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def remax(policy: fl.Model, prompts: fl.Prompts, *, samples=1):
    """Reinforce whole answers by how much better they are than the greedy answer."""
    rollouts, scores = ops.score("reward", ops.generate(policy, prompts, n=samples))
    _, greedy = ops.score("reward", ops.generate(policy, prompts, temperature=0.0))
    baseline = ops.align(greedy, to=rollouts).mean(over="sample")      # f32[prompt], of the same rows
    advantages = ops.remax(ops.token_rewards(scores, rollouts.mask), rollouts.mask, baseline)

    def loss(new):
        return ops.sequence_sum_mean(ops.reinforce(new.logprobs, advantages), rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
