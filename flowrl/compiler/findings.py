"""What the passes find out about a program that its author should know before it runs."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

from flowrl.compiler.cluster import Cluster
from flowrl.compiler.filtered import uncorrected
from flowrl.compiler.losses import split_losses
from flowrl.compiler.simplify import simplify
from flowrl.ir.graph import Graph, Node
from flowrl.ir.plan import encode
from flowrl.ir.printer import show
from flowrl.ir.program import InputKind, Program
from flowrl.ir.regions import used_inputs
from flowrl.ops.model import Update
from flowrl.ops.tensor import Constant

Sampling = Mapping[str, Mapping[str, Any]]


def findings(
    program: Program,
    hyperparameters: Mapping[str, Any] | None = None,
    sampling: Sampling | None = None,
    reward_models: Collection[str] = (),
    *,
    given: Collection[str] | None = None,
) -> list[str]:
    """Return a sentence for each finding, in this order.

    Models that are never read, hyperparameters that change nothing (another value gives the same
    graph, once simplified) and which other at None, 0 or False is why, a KL in both reward and
    loss, losses that train on filtered samples as if they were plain ones, losses that need two
    passes.

    Args:
        program: is traced, once more for each hyperparameter.
        hyperparameters: values; the others are at their defaults.
        sampling: as `Program.trace` takes it.
        reward_models: as `Program.trace` takes them.
        given: hyperparameters that a run file gives: of no other is it said that it changes
            nothing, as its user hasn't set it. None: all count, for the program's author.

    Raises:
        ProgramError: the program breaks a rule of the language.
    """
    return _Findings(program, hyperparameters or {}, sampling or {}, reward_models, given).all()


def models_read(graph: Graph) -> set[str]:
    """Return the roles of a simplified graph that must be loaded."""
    return used_inputs(graph)


class _Findings:
    def __init__(
        self,
        program: Program,
        hyperparameters: Mapping[str, Any],
        sampling: Sampling,
        reward_models: Collection[str],
        given: Collection[str] | None,
    ) -> None:
        self.program, self.known = program, (sampling, reward_models)
        traced = program.trace(hyperparameters, *self.known)
        self.params = dict(traced.hyperparameters)
        self.given = self.params if given is None else given
        self.graph = simplify(traced.graph, Cluster())
        self.others = {name: self._other(name, self.params) for name in self.params}

    def all(self) -> list[str]:
        return [
            *self._unread(),
            *self._inert(),
            *self._kl_twice(),
            *self._filtered(),
            *self._two_passes(),
        ]

    def _unread(self) -> Iterator[str]:
        read = models_read(self.graph)
        for spec in self.program.inputs:
            if spec.kind is InputKind.MODEL and spec.name not in read:
                reason = next((f": {cause}" for cause in self._causes(spec.name)), "")
                yield f"`{spec.name}` is never read and never loaded{reason}."

    def _causes(self, role: str) -> Iterator[str]:
        """Yield the hyperparameters at None, 0 or False without which the model would be read."""
        for name, other in self.others.items():
            if not self.params[name] and other and role in models_read(other.graph):
                yield f"{name} = {show(self.params[name])}"

    def _inert(self) -> Iterator[str]:
        computed = _computed(self.graph)
        for name, other in self.others.items():
            if self.params[name] is None:  # what else it may be, a name or a number, isn't known
                continue
            if name in self.given and other and _computed(other.graph) == computed:
                reason = next((f": {cause}" for cause in self._switches(name)), "")
                value = show(self.params[name])
                yield f"`{name}` = {value} changes nothing that is computed{reason}."

    def _switches(self, inert: str) -> Iterator[str]:
        """Yield the hyperparameters at None, 0 or False without which `inert` would count.

        It counts where it gives another graph than another value does, or is refused.
        """
        changed = self.others[inert]
        for name, value in self.params.items():
            on = self._other(name, changed.params) if changed and not value else None
            if on:
                kept = self._traced({**on.params, inert: self.params[inert]})
                if kept is None or _computed(kept.graph) != _computed(on.graph):
                    yield f"{name} = {show(value)}"

    def _kl_twice(self) -> Iterator[str]:
        zeros = {n.results[0] for n in self.graph.nodes if n.op == Constant(0.0)}
        nodes = list(self.graph.walk())
        rewards = (n for n in nodes if n.op.name == "token_rewards" and zeros.isdisjoint(n.args))
        losses = [node.op.loss for node in nodes if isinstance(node.op, Update)]
        kls = (node for loss in losses for node in loss.nodes if node.op.name == "kl")
        reward, kl = next((n for n in rewards if len(n.args) == 3), None), next(kls, None)
        if reward and kl:
            places = f"in the reward (at {reward.loc}) and in the loss (at {kl.loc})"
            yield f"A KL is {places}: both count."

    def _filtered(self) -> Iterator[str]:
        for update, draw in uncorrected(self.graph):
            yield (
                f"The loss at {update.loc} trains on samples of a cut distribution "
                f"({_filters(draw)}, drawn at {draw.loc}) without correcting for it."
            )

    def _two_passes(self) -> Iterator[str]:
        split = split_losses(self.graph, Cluster())
        for node in split.walk():
            if isinstance(node.op, Update) and node.op.passes == 2:
                yield (
                    f"The loss at {node.loc} takes two passes, which costs one more forward pass: "
                    f"{node.op.why}."
                )

    def _other(self, name: str, params: Mapping[str, Any]) -> "_Other | None":
        """Return the program with another value of a hyperparameter, or None if there is none."""
        tried = (self._traced({**params, name: value}) for value in _others(params[name]))
        return next(filter(None, tried), None)

    def _traced(self, params: Mapping[str, Any]) -> "_Other | None":
        """Return the program with these hyperparameters, or None if it refuses them."""
        try:
            traced = self.program.trace(params, *self.known)
            return _Other(params, simplify(traced.graph, Cluster()))
        except Exception:  # whatever it raises, those values are none to compare with
            return None


@attrs.frozen
class _Other:
    """A program with other hyperparameters, simplified."""

    params: Mapping[str, Any]
    graph: Graph


def _filters(draw: Node) -> str:
    """Return what cuts the distribution that a draw samples from."""
    names = ("temperature", "top_p", "top_k", "min_tokens")
    shown = {k: v for k, v in draw.op.attributes().items() if k in names}
    return ", ".join(f"{k}={show(v)}" for k, v in shown.items())


def _others(value: Any) -> tuple[Any, ...]:
    """Return other values of a hyperparameter's type, or numbers for one that is off; else none."""
    if value is None:
        return 0.5, 1
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return value + 1, value - 1
    if isinstance(value, float):
        return (value / 2, value * 2) if value else (0.5,)
    return ()


def _computed(graph: Graph) -> dict[str, Any]:
    """Return all that a graph computes, as data to compare."""
    return {key: part for key, part in encode(graph).items() if key != "params"}
