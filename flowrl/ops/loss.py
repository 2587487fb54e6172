"""Losses of critics, of pairs and of labels: unreduced, to be minimised."""

from flowrl.ir.graph import Value
from flowrl.ir.trace import builder_of
from flowrl.ops.expect import in_interval, refuse
from flowrl.ops.tensor import Per, apply

TRIPLE = "f32[..., token], f32[..., token], f32[..., token] -> f32[..., token]"
PAIR = "f32[..., sample] -> f32[...]"


def clipped_value(
    values: Value, old_values: Value, returns: Value, *, clip: float | None = 0.2
) -> Value:
    """Return half the squared error of each value, the worse of clipped and not.

    Args:
        values: f32[prompt, sample, token], of the critic being trained.
        old_values: f32[prompt, sample, token], before this batch's updates.
        returns: f32[prompt, sample, token], the targets, in reward units.
        clip: how far a value may move from the old one and still count; None is any.

    Returns:
        f32[prompt, sample, token], to be minimised.

    Source: Schulman et al. 2016, arXiv:1506.02438 (the clip is common practice).
    """
    in_interval("clipped_value", "(0, inf)", clip=clip)
    args = {"values": values, "old_values": old_values, "returns": returns}
    return apply("losses:clipped_value", TRIPLE, Per.TOKEN, args, {"clip": clip})


def dpo_loss(ratios: Value, *, beta: float = 0.1, label_smoothing: float = 0.0) -> Value:
    """Return the direct preference loss of each pair.

    Args:
        ratios: f32[prompt, sample], log-probability of each answer under the policy less that
            under the reference, summed over tokens; two samples a prompt, the chosen one first.
        beta: weight of the KL constraint behind the loss; above 0.
        label_smoothing: share of pairs taken to be labelled wrongly, in [0, 0.5).

    Returns:
        f32[prompt], -log sigmoid(beta * (chosen - rejected)).

    Raises:
        ProgramError: `ratios` isn't f32[..., sample], or has other than two samples a prompt.

    Source: Rafailov et al. 2023, arXiv:2305.18290, eq. 7.
    """
    in_interval("dpo_loss", "(0, inf)", beta=beta)
    in_interval("dpo_loss", "[0, 0.5)", label_smoothing=label_smoothing)
    _of_pairs("dpo_loss", ratios)
    options = {"beta": beta} | ({"label_smoothing": label_smoothing} if label_smoothing else {})
    return apply("preferences:dpo_loss", PAIR, Per.GROUP, {"ratios": ratios}, options)


def bradley_terry(rewards: Value, *, margin: float = 0.0) -> Value:
    """Return -log sigmoid(chosen - rejected - margin) of each pair: it trains a reward model.

    Args:
        rewards: f32[prompt, sample], `new.rewards`; two samples a prompt, the chosen one first.
        margin: how much better the chosen one has to be, in reward units.

    Returns:
        f32[prompt].

    Raises:
        ProgramError: `rewards` has other than two samples a prompt.

    Source: Ouyang et al. 2022, arXiv:2203.02155, eq. 1; Touvron et al. 2023, arXiv:2307.09288,
    eq. 2 (margin).
    """
    in_interval("bradley_terry", "[0, inf)", margin=margin)
    _of_pairs("bradley_terry", rewards)
    options = {"margin": margin}
    return apply("preferences:bradley_terry", PAIR, Per.GROUP, {"rewards": rewards}, options)


def binary_cross_entropy(logits: Value, labels: Value) -> Value:
    """Return -y log sigmoid(x) - (1 - y) log sigmoid(-x) of each logit x and its label y.

    Args:
        logits: f32[prompt, sample], or with any other axes.
        labels: f32 of the same axes, in [0, 1]: the probability that the logit is to give.

    Returns:
        f32 of the same axes, in nats. When it runs, EngineError: a label isn't in [0, 1].

    Source: Good 1952, "Rational decisions".
    """
    args = {"logits": logits, "labels": labels}
    signature = "f32[...], f32[...] -> f32[...]"
    return apply("losses:binary_cross_entropy", signature, Per.TOKEN, args)


def _of_pairs(op: str, x: Value) -> None:
    """Check that there are two samples a prompt, where their number is known."""
    sizes = builder_of([x], op).root.sizes if isinstance(x, Value) else {}
    n = next((sizes[axis] for axis in x.axes if axis in sizes), 2) if sizes else 2
    if n != 2:
        refuse(
            op,
            f"takes pairs, two samples a prompt; got {n} a prompt",
            "draw two, `ops.generate(policy, prompts, n=2)`, or take `fl.Pairs`",
        )
