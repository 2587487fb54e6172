"""An adapter as the planner sees it: what is trained beside a model that stays as it is."""

from collections.abc import Iterator
from functools import cached_property

import attrs

from flowrl.compiler.shapes.model_shape import ModelShape
from flowrl.compiler.shapes.parameter import Parameter, ParameterKind
from flowrl.errors import EngineError, nearest

ALL = "all-linear"
"""The targets that are all linear layers but heads."""


@attrs.frozen(cache_hash=True)
class AdapterShape(ModelShape):
    """A model whose parameters are those of its adapter, and of a head of one number.

    To a linear layer W x it adds B A x, with A f32[rank, input] and B f32[output, rank] (Hu et al.
    2021, arXiv:2106.09685, sec. 4.1). A head of one number is trained itself.

    Attributes:
        rank: rows of A and columns of B.
        targets: names of the linear layers, or their last parts; `ALL` for all but heads.
    """

    rank: int
    targets: str | tuple[str, ...] = ALL

    @classmethod
    def beside(
        cls, base: ModelShape, rank: int, targets: str | tuple[str, ...] = ALL
    ) -> "AdapterShape":
        """Return the adapter of a model.

        Raises:
            EngineError: a target is no linear layer of the model, or the model has experts.
        """
        if base.experts:
            raise EngineError(
                f"the planner knows no adapters of experts, which a {base.family} has",
                hint="take a dense model, or train the whole model",
            )
        names = [_module(p) for p in base.parameters() if _is_layer(p)]
        known = {name.rpartition(".")[2] for name in names}
        for target in _asked(targets):
            if not any(_is_named(name, target) for name in names):
                raise EngineError(
                    f"a {base.family} has no linear layers `{target}` for adapters"
                    f"{nearest(target, known)}",
                    hint=f'there are {", ".join(sorted(known))}; targets = "{ALL}" takes all '
                    "but heads",
                )
        return cls(base.family, base.head, base.dimensions, rank, targets)

    @cached_property
    def _parameters(self) -> tuple[Parameter, ...]:
        return tuple(self._beside(ModelShape(self.family, self.head, self.dimensions)))

    def _beside(self, base: ModelShape) -> Iterator[Parameter]:
        """Yield the parameters; all ranks of tensor parallelism would have all of each."""
        kind, asked = ParameterKind.LATENT, _asked(self.targets)
        for parameter in base.parameters():
            module = _module(parameter)
            named = self.targets == ALL or any(_is_named(module, target) for target in asked)
            if _is_layer(parameter) and named:
                into, out = (parameter.shape[d] for d in (parameter.input, parameter.output))  # type: ignore[index]
                low, high = (f"{module}.lora_{each}.default.weight" for each in "AB")
                yield Parameter(low, (self.rank, into), kind, parameter.layer, 0, 1)
                yield Parameter(high, (out, self.rank), kind, parameter.layer, 0, 1)
            elif parameter.kind is ParameterKind.SCORE:
                yield parameter


def _asked(targets: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names among targets."""
    if isinstance(targets, tuple):
        return targets
    return () if targets == ALL else (targets,)


def _is_layer(parameter: Parameter) -> bool:
    return parameter.is_matrix and parameter.layer is not None


def _module(parameter: Parameter) -> str:
    return parameter.name.rpartition(".")[0]


def _is_named(module: str, target: str) -> bool:
    return f".{module}".endswith(f".{target}")
