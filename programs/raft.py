"""Reward rAnked FineTuning: best of n, imitated (Dong et al. 2023, arXiv:2304.06767).

Left out of the paper: several epochs on the chosen answers. Answers that tie are all chosen.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def raft(policy: fl.Model, prompts: fl.Prompts, *, samples=8):
    """Maximise the log-probability of the best of each prompt's samples."""
    rollouts, rewards = ops.score("reward", ops.generate(policy, prompts, n=samples))
    best = rewards.max(over="sample")                      # f32[prompt]
    chosen = ops.select(rollouts, where=rewards == best)
    policy, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, chosen.mask), chosen)
    return policy, stats | {"best": best.mean()}
