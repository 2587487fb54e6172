"""Evaluation: sample, score, report; nothing is trained."""

import flowrl as fl
from flowrl import ops


@fl.program
def evaluate(policy: fl.Model, prompts: fl.Prompts, *, samples=1, temperature=1.0, reward="reward", greedy=True, pass_at=()):
    """Return the mean reward of samples, that of greedy answers, and pass@k."""
    rollouts, rewards = ops.score(reward, ops.generate(policy, prompts, n=samples, temperature=temperature))
    metrics = {"reward": rewards.mean(), "tokens": rollouts.mask.float().sum(over="token", mask=rollouts.mask).mean()}
    metrics |= {f"pass_at_{k}": ops.pass_at(rewards, k=k) for k in pass_at}
    if greedy:
        _, best = ops.score(reward, ops.generate(policy, prompts, temperature=0.0))
        metrics |= {"greedy": best.mean()}
    return metrics
