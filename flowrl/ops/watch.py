"""What `update` measures by itself, from the forward pass that it makes anyway."""

from typing import Any

from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Node, Value
from flowrl.ir.records import fields_of
from flowrl.ir.types import TensorType
from flowrl.ops.reduce import token_mean
from flowrl.ops.tensor import Constant, Per, Rule, TensorOp, apply

MASKED_PAIR = "f32[..., token], f32[..., token], bool[..., token]"


def watch(inner: GraphBuilder, new: Any, rollouts: Any, loss: Value) -> dict[str, Value]:
    """Return the metrics of a loss, as further outputs of its graph.

    `kl`, the mean of the loss's KL terms; `entropy`, if the loss reads it; `clip_fraction`, the
    share of tokens where a clip is active; `kl_old`, the k3 estimate of the KL from the
    sampling policy; `logprob_gap_max`, the greatest difference between the engine's and the
    trainer's log-probabilities of the version that sampled. Terms with a coefficient of 0
    aren't measured: nothing is computed for them.
    """
    nodes = [node for node in _terms(inner, loss) if isinstance(node.op, TensorOp)]
    mask = fields_of(rollouts)["mask"]
    found: dict[str, Value] = {}
    for node in nodes:
        if node.op.name == "kl" and _like(node.results[0], mask):
            found["kl"] = token_mean(node.results[0], mask)
        if node.op.name == "clipped_surrogate":
            found["clip_fraction"] = _clip_fraction(node, mask)
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


def _clip_fraction(node: Node, mask: Value) -> Value:
    assert isinstance(node.op, TensorOp)
    args = dict(zip(("new", "old", "advantages"), node.args, strict=True)) | {"mask": mask}
    options = {name: value for name, value in node.op.params if name != "dual_clip"}
    signature = "f32[..., token], f32[..., token], f32[..., token], bool[..., token] -> f32[]"
    return apply("clipping:clip_fraction", signature, Per.BATCH, args, options)


def _against_sampler(new: Any, fields: dict[str, Any], mask: Value) -> dict[str, Value]:
    sampled, version = fields.get("logprobs"), fields.get("version")
    if sampled is None or version is None or not new.reads("logprobs"):
        return {}
    ours, theirs = new.logprobs.type.origin, sampled.type.origin
    if theirs is None or theirs.distribution != ours.distribution or theirs.model != ours.model:
        return {}
    args = {"new": new.logprobs, "sampled": sampled, "mask": mask}
    kl_old = apply(
        "metrics:approximate_kl", f"{MASKED_PAIR} -> f32[]", Per.BATCH, args, rule=Rule.SAME_MODEL
    )
    signature = f"{MASKED_PAIR}, i32[...], i32[] -> f32[]"
    more = {"version": version, "now": new.read("version")}
    gap = apply("metrics:sampled_gap", signature, Per.BATCH, args | more)
    return {"kl_old": kl_old, "logprob_gap_max": gap}
