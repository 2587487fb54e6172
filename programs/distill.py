"""On-policy distillation from a teacher (Agarwal et al. 2023, arXiv:2306.13649, "GKD").

Left out of the paper: divergences over the whole vocabulary other than the reverse KL, which is
estimated here from the tokens sampled; the share of samples that come from data.
"""

import flowrl as fl
from flowrl import ops


@fl.program
def distill(policy: fl.Model, teacher: fl.Model, prompts: fl.Prompts, *, samples=1):
    """Minimise KL(policy || teacher) at each token of the policy's own samples."""
    rollouts = ops.generate(policy, prompts, n=samples)
    taught = ops.logprobs(teacher, rollouts)

    def loss(new):
        kl = ops.kl(new.logprobs, taught, rollouts.logprobs, gradient="unbiased")
        return ops.token_mean(kl, rollouts.mask)

    policy, stats = ops.update(policy, loss, rollouts)
    return policy, stats
