"""Bundles: parameters that an engine stores as one tensor."""

from collections.abc import Hashable, Iterator

import attrs

from flowrl.compiler.shapes import ModelShape, Parameter, ParameterKind

Kind = ParameterKind

JOINED = {
    "qkv_proj": (Kind.QUERY, Kind.KEY, Kind.VALUE),
    "gate_up_proj": (Kind.GATE, Kind.UP),
}
"""What vLLM joins, in its order; only where all of them stand in one module."""


@attrs.frozen
class Bundle:
    """Parameters that an engine stores as one tensor; most are by themselves.

    Attributes:
        tensor: the engine's name of it.
        parameters: in the order in which they are joined.
    """

    tensor: str
    parameters: tuple[Parameter, ...]

    @property
    def layer(self) -> int | None:
        """The layer that it stands in."""
        return self.parameters[0].layer

    @property
    def form(self) -> Hashable:
        """What decides how it is divided; bundles of equal form lie alike in every layer."""
        return tuple(attrs.evolve(p, name="", layer=None) for p in self.parameters)

    def names_in(self, other: "Bundle") -> dict[str, str]:
        """Return the names that another bundle of the same form has for tensor and parameters."""
        pairs = zip(self.parameters, other.parameters, strict=True)
        return {self.tensor: other.tensor, **{mine.name: its.name for mine, its in pairs}}


def bundles(shape: ModelShape) -> tuple[Bundle, ...]:
    """Return a model's parameters as bundles, in the model's order."""
    return tuple(_bundles(shape.parameters()))


def _bundles(parameters: tuple[Parameter, ...]) -> Iterator[Bundle]:
    partners: dict[tuple[str, str, str], dict[Kind, Parameter]] = {}
    for parameter in parameters:
        key = _key(parameter)
        if key:
            partners.setdefault(key, {})[parameter.kind] = parameter
    for parameter in parameters:
        key = _key(parameter)
        found = partners.get(key, {}) if key else {}
        kinds = JOINED[key[1]] if key else ()
        if not key or len(found) < len(kinds):
            yield Bundle(parameter.name, (parameter,))
        elif parameter.kind is kinds[0]:
            yield Bundle(".".join(key), tuple(found[kind] for kind in kinds))


def _key(parameter: Parameter) -> tuple[str, str, str] | None:
    """Return module, joined name and `weight` or `bias` of what may be joined."""
    if parameter.experts is not None:
        return None
    module, _, leaf = parameter.name.rpartition(".")
    for name, kinds in JOINED.items():
        if parameter.kind in kinds:
            return module.rpartition(".")[0], name, leaf
    return None
