"""How far two policies are apart, and how much that is to cost."""

from flowrl.ir.graph import Value
from flowrl.ops.expect import in_interval, one_of, refuse
from flowrl.ops.tensor import Per, Rule, apply

TOKENS = "f32[..., token]"


def kl(
    logprobs: Value,
    reference: Value,
    old: Value | None = None,
    *,
    estimator: str = "k3",
    gradient: str = "direct",
) -> Value:
    """Estimate KL(policy || reference) from each token that the policy sampled.

    Args:
        logprobs: f32[prompt, sample, token], under the policy.
        reference: f32[prompt, sample, token], under the other model.
        old: f32[prompt, sample, token], under the version that sampled, where it is another one.
        estimator: "k1" d, "k2" d^2/2 or "k3" exp(-d) - 1 + d, with d = logprobs - reference.
        gradient: "direct" differentiates the estimator; "unbiased" has the gradient of k2,
            weighted by exp(logprobs - old) if there is `old`.

    Returns:
        f32[prompt, sample, token], in nats.

    Raises:
        ProgramError: the temperatures, filters or tokens differ, there is no such estimator or
            gradient, or `old` has no use.

    Source: Schulman 2020, "Approximating KL divergence".
    """
    one_of("kl", "estimator", estimator, ("k3", "k1", "k2"))
    one_of("kl", "gradient", gradient, ("direct", "unbiased"))
    signature, args = f"{TOKENS}, {TOKENS}", {"logprobs": logprobs, "reference": reference}
    if old is not None:
        if gradient == "direct":
            refuse(
                "kl",
                "`old` weighs the slope of gradient='unbiased'; got gradient='direct'",
                "leave `old` out, or set gradient='unbiased'",
            )
        signature, args = f"{signature}, {TOKENS}", {**args, "old": old}
    return apply(
        "divergences:kl",
        f"{signature} -> {TOKENS}",
        Per.TOKEN,
        args,
        {"estimator": estimator, "gradient": gradient},
        rule=Rule.SAME_DISTRIBUTION,
        compared=3,
    )


def adaptive_kl(coefficient: Value, divergence: Value, *, target: float, horizon: float) -> Value:
    """Return the KL coefficient of the next step: larger if the KL was above its target.

    coefficient * (1 + clip(mean KL / target - 1, -0.2, 0.2) * samples / horizon). The coefficient
    is carried from step to step: `kl_coef: fl.Carry = fl.Carry(0.2)`, returned among the models.

    Args:
        coefficient: f32[], the present one.
        divergence: f32[prompt, sample], the KL of each sample. Summed over its tokens it is the
            paper's, `(logprobs - anchor).sum(over="token", mask=rollouts.mask)`; a mean over
            tokens goes with a target that is smaller by the length of the samples.
        target: the KL wanted, in nats; above 0.
        horizon: samples over which to correct; above 0, and above a fifth of a step's samples.

    Returns:
        f32[].

    Raises:
        ProgramError: `target` or `horizon` isn't above 0. When it runs, EngineError: one step
            might take the coefficient to 0 or below.

    Source: Ziegler et al. 2019, arXiv:1909.08593, sec. 2.2.
    """
    units = "target is in nats, horizon in samples"
    in_interval("adaptive_kl", "(0, inf)", hint=units, target=target, horizon=horizon)
    return apply(
        "divergences:adaptive_kl",
        "f32[], f32[..., sample] -> f32[]",
        Per.BATCH,
        {"coefficient": coefficient, "divergence": divergence},
        {"target": target, "horizon": horizon},
    )
