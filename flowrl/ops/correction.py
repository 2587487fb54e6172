"""Weights for what engine and trainer differ by: an option of every program with a policy gradient.

While a corrected program is traced, `generate` and `score` put the trainer's log-probabilities of
the version that sampled beside the samples, and `update` weighs each term of its loss that is made
by `policy_gradient`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

from flowrl.ir.builder import GraphBuilder
from flowrl.ir.correction import Correction
from flowrl.ir.graph import Model, Value
from flowrl.ir.program import Program
from flowrl.ir.records import Rollouts, fields_of
from flowrl.ir.trace import bind
from flowrl.ops.data import take
from flowrl.ops.importance import check_weights, importance_weights
from flowrl.ops.metrics import watch_weights
from flowrl.ops.model import Logprobs
from flowrl.ops.tensor import Per, apply


def corrected(
    program: Program,
    *,
    level: str = "token",
    mode: str = "truncate",
    low: float | None = None,
    high: float | None = 2.0,
) -> Program:
    """Return a program whose policy gradient is weighted for what engine and trainer differ by.

    An engine's log-probabilities differ a little from the trainer's of the same weights, so its
    samples are those of another policy. In each loss of the policy that sampled, the trainer's take
    the place of the engine's as the surrogates' `old`, and each surrogate is multiplied by
    `ops.importance_weights` of trainer against engine, constants of the gradient. The terms are
    those of `ops.clipped_surrogate`, `sequence_surrogate`, `cispo`, `reinforce`, `clip_cov` and
    `kl_cov`; a KL, an entropy or a critic's error isn't weighted, and `ops.decoupled` has weights
    of its own.

    Args:
        program: any with such a term; it isn't changed.
        level: "token", "sequence" or "geomean"; here and below, see `ops.importance_weights`.
        mode: "truncate", "mask" or "geomean_filter_token_truncate".
        low: the lower bound; None for none.
        high: the upper bound; None for none.

    Returns:
        A program with the same arguments, which also measures `weight_mean`, `weight_max`,
        `kept_fraction` and `effective_sample_size`.

    Raises:
        ProgramError: options contradict. When it is traced: it has no such term.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training" (truncate); Liu et al. 2025, "When speed kills stability" (mask).
    """
    check_weights("corrected", level, mode, low, high)
    return program.corrected({"level": level, "mode": mode, "low": low, "high": high})


def recompute(builder: GraphBuilder, policy: Model, rollouts: Rollouts) -> Rollouts:
    """Put the trainer's log-probabilities beside the engine's, if the program is corrected."""
    correction, origin = builder.root.correction, rollouts.logprobs.origin
    if correction is None or origin is None or not origin.temperature:
        return rollouts
    args = policy, rollouts.prompts.context, rollouts.tokens
    (recomputed,) = bind(Logprobs(origin.temperature), *args)
    correction.samplers[recomputed] = policy
    return attrs.evolve(rollouts, recomputed=recomputed)


def take_rollouts(builder: GraphBuilder, selection: Value, rollouts: Rollouts) -> Rollouts:
    """Return the selected rollouts, recomputed by themselves, as their first update does anyway."""
    correction, recomputed = builder.root.correction, rollouts.recomputed
    if correction is None or recomputed is None or recomputed not in correction.samplers:
        return take(builder, selection, rollouts)
    bare = take(builder, selection, attrs.evolve(rollouts, recomputed=None))
    return recompute(builder, correction.samplers[recomputed], bare)


@attrs.define(eq=False)
class Weighing:
    """The weights of one loss, made when its first term asks for them."""

    correction: Correction
    fields: Mapping[str, Any]
    made: tuple[Value, Value] | None = None

    def weights(self) -> Value:
        """Return f32[prompt, sample, token]."""
        if self.made is None:
            of = self.fields["recomputed"], self.fields["logprobs"], self.fields["mask"]
            self.made = importance_weights(*of, **self.correction.options)
        self.correction.terms += 1
        return self.made[0]

    def measured(self) -> dict[str, Value]:
        """Return how unequal the weights are, if there are any."""
        return watch_weights(*self.made, self.fields["mask"]) if self.made else {}


_weighing: ContextVar[Weighing | None] = ContextVar("weights of the loss", default=None)


@contextmanager
def weighing(builder: GraphBuilder, model: Model, rollouts: Any) -> Iterator[Weighing | None]:
    """Weigh the terms that are made inside, if `model` sampled and its program is corrected."""
    correction, fields = builder.root.correction, fields_of(rollouts)
    mine = "recomputed" in fields and fields["recomputed"].origin.model == model.role
    token = _weighing.set(Weighing(correction, fields) if correction and mine else None)
    try:
        yield _weighing.get()
    finally:
        _weighing.reset(token)


def policy_gradient(
    function: str, signature: str, per: Per, args: Mapping[str, Value], *more: Any, **fields: Any
) -> Value:
    """Add a term of the policy gradient, f32[..., token]: `apply`, weighted as the loss asks."""
    weights = _weighing.get()
    if weights is None:
        return apply(function, signature, per, args, *more, **fields)
    old = args.get("old")
    if old is not None and old.origin == weights.fields["logprobs"].origin:
        args = {**args, "old": weights.fields["recomputed"]}
    return weights.weights() * apply(function, signature, per, args, *more, **fields)
