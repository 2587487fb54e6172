"""What `update` measures by itself, from the forward pass that it makes anyway."""

from collections.abc import Callable
from functools import partial
from typing import Any

from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Node, Value
from flowrl.ir.records import fields_of
from flowrl.ir.types import TensorType
from flowrl.ops.reduce import token_mean
from flowrl.ops.tensor import Constant, Per, Rule, TensorOp, apply, apply_many

MASKED_PAIR = "f32[..., token], f32[..., token], bool[..., token]"
CLIPPED = ("clip_fraction", "clip_fraction_low", "clip_fraction_high")


def watch(inner: GraphBuilder, new: Any, rollouts: Any, loss: Value) -> dict[str, Value]:
    """Return the metrics of a loss, as further outputs of its graph.

    `kl`, the mean of the loss's KL terms; `entropy`, if the loss reads it; of a surrogate with a
    clip `clip_fraction`, the share of tokens where it is active, `clip_fraction_low` and
    `clip_fraction_high`, its two sides, and `ratio_min`, `ratio_max`; of a critic's loss
    `value_clip_fraction` and `explained_variance`; `kl_old`, the k3 estimate of the KL from the
    sampling policy; `logprob_gap_mean` and `logprob_gap_max`, the difference between the engine's
    and the trainer's log-probabilities of the version that sampled. Terms with a coefficient of 0
    aren't measured: nothing is computed for them.
    """
    mask = fields_of(rollouts)["mask"]
    found: dict[str, Value] = {}
    for node in _terms(inner, loss):
        measure = MEASURES.get(node.op.function) if isinstance(node.op, TensorOp) else None
        if measure and _like(node.results[0], mask):
            found |= measure(node, mask)
    if new.reads("entropy"):
        found["entropy"] = token_mean(new.entropy, mask)
    return found | _against_sampler(new, fields_of(rollouts), mask)


def _terms(inner: GraphBuilder, loss: Value) -> list[Node]:
    """Return the nodes that the loss depends on, but by a coefficient of 0."""
    zeros = {n.results[0] for n in inner.nodes if isinstance(n.op, Constant) and n.op.value == 0}
    live = {loss}
    found = []
    for node in reversed(inner.nodes):
        if not live.isdisjoint(node.results):
            found.append(node)
            switched_off = node.op.name == "mul" and not zeros.isdisjoint(node.args)
            live.update(() if switched_off else node.args)
    return found[::-1]


def _like(value: Value, mask: Value) -> bool:
    types = value.type, mask.type
    return all(isinstance(t, TensorType) for t in types) and types[0].axes == types[1].axes  # type: ignore[union-attr]


def _kl(node: Node, mask: Value) -> dict[str, Value]:
    return {"kl": token_mean(node.results[0], mask)}


def _surrogate(
    node: Node, mask: Value, *, fractions: str = "clipping:clip_fractions", advantages: int = 2
) -> dict[str, Value]:
    """Measure a surrogate of (new, old, ...), whose ratio is new / old.

    Args:
        node: the surrogate.
        mask: bool[..., token].
        fractions: the function that says where its clip is active.
        advantages: which of its arguments they are.
    """
    new, old = node.args[:2]
    args = {"new": new, "old": old, "advantages": node.args[advantages], "mask": mask}
    signature = f"f32[..., token], {MASKED_PAIR}"
    sides = apply_many(
        fractions,
        f"{signature} -> f32[], f32[], f32[]",
        Per.BATCH,
        args,
        _options(node, "clip", "clip_high"),
        outputs=CLIPPED,
    )
    found = dict(zip(CLIPPED, sides, strict=True)) | _ratios(new, old, mask)
    options = _options(node, "clip", "clip_high", "dual_clip")
    if "dual_clip" in options:
        function = "clipping:dual_clip_fraction"
        dual = apply(function, f"{signature} -> f32[]", Per.BATCH, args, options)
        found["dual_clip_fraction"] = dual
    return found


def _cispo(node: Node, mask: Value) -> dict[str, Value]:
    new, old = node.args[:2]
    args, options = {"new": new, "old": old, "mask": mask}, _options(node, "clip", "clip_high")
    signature = f"{MASKED_PAIR} -> f32[]"
    fraction = apply("clipping:ratio_clip_fraction", signature, Per.BATCH, args, options)
    return {"clip_fraction": fraction} | _ratios(new, old, mask)


def _ratios(new: Value, old: Value, mask: Value) -> dict[str, Value]:
    names = ("ratio_min", "ratio_max")
    args = {"new": new, "old": old, "mask": mask}
    signature = f"{MASKED_PAIR} -> f32[], f32[]"
    ends = apply_many("metrics:ratio_extremes", signature, Per.BATCH, args, outputs=names)
    return dict(zip(names, ends, strict=True))


def _critic(node: Node, mask: Value) -> dict[str, Value]:
    values, old, returns = node.args
    args = {"values": values, "returns": returns, "mask": mask}
    explained = apply("metrics:explained_variance", f"{MASKED_PAIR} -> f32[]", Per.BATCH, args)
    options = _options(node, "clip")
    if not options:
        return {"explained_variance": explained}
    args = {"values": values, "old_values": old, "returns": returns, "mask": mask}
    signature = f"f32[..., token], {MASKED_PAIR} -> f32[]"
    clipped = apply("losses:value_clip_fraction", signature, Per.BATCH, args, options)
    return {"value_clip_fraction": clipped, "explained_variance": explained}


def _options(node: Node, *names: str) -> dict[str, Any]:
    """Return the options of a node that are set, of some names."""
    assert isinstance(node.op, TensorOp)
    return {name: x for name, x in node.op.params if name in names and x is not None}


MEASURES: dict[str, Callable[[Node, Value], dict[str, Value]]] = {
    "divergences:kl": _kl,
    "surrogate:clipped_surrogate": _surrogate,
    "surrogate:sequence_surrogate": partial(
        _surrogate, fractions="clipping:sequence_clip_fractions"
    ),
    "surrogate:decoupled": partial(_surrogate, advantages=3),
    "covariance:clip_cov": _surrogate,
    "losses:cispo": _cispo,
    "losses:clipped_value": _critic,
}
"""What is measured of each term of a loss, by the function that it is."""


def _against_sampler(new: Any, fields: dict[str, Any], mask: Value) -> dict[str, Value]:
    sampled, version = fields.get("logprobs"), fields.get("version")
    if sampled is None or version is None or not new.reads("logprobs"):
        return {}
    ours, theirs = new.logprobs.origin, sampled.origin
    if theirs is None or theirs.distribution != ours.distribution or theirs.model != ours.model:
        return {}
    args = {"new": new.logprobs, "sampled": sampled, "mask": mask}
    kl_old = apply(
        "metrics:approximate_kl", f"{MASKED_PAIR} -> f32[]", Per.BATCH, args, rule=Rule.SAME_MODEL
    )
    names = ("logprob_gap_mean", "logprob_gap_max")
    signature = f"{MASKED_PAIR}, i32[...], i32[] -> f32[], f32[]"
    args |= {"version": version, "now": new.read("version")}
    gaps = apply_many("metrics:sampled_gap", signature, Per.BATCH, args, outputs=names)
    return {"kl_old": kl_old} | dict(zip(names, gaps, strict=True))
