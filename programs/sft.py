"""Supervised fine-tuning: imitate examples, token by token."""

import flowrl as fl
from flowrl import ops


@fl.program
def sft(policy: fl.Model, examples: fl.Examples):
    """Maximise the log-probability of the trained tokens of each example."""
    policy, stats = ops.update(policy, lambda new: ops.token_mean(-new.logprobs, examples.mask), examples)
    return policy, stats
