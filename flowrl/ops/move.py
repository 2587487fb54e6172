"""Data movement; only the compiler makes these."""

from typing import Any

import attrs

from flowrl.ir.graph import Op
from flowrl.ir.signature import TypeRuleError
from flowrl.ir.types import ModelType, Type


@attrs.frozen
class Transfer(Op):
    """Bring a value from one pool to another; the identity on its contents.

    The transfer of a model is its weight sync: nothing else in flowrl moves weights.
    """

    src: str
    dst: str

    def infer(self, value: Type) -> tuple[Type, ...]:
        """T -> T."""
        return (value,)


@attrs.frozen
class Reshard(Transfer):
    """Bring a model's weights into another layout, in its pool or in another."""

    layout: str

    def infer(self, value: Type) -> tuple[Type, ...]:
        """Model -> the same weights, laid out otherwise."""
        if not isinstance(value, ModelType):
            raise TypeRuleError(f"takes a model; got {value}")
        return (attrs.evolve(value, layout=self.layout),)

    def attributes(self) -> dict[str, Any]:
        """Return the pools only if they differ."""
        pools = {} if self.src == self.dst else {"src": self.src, "dst": self.dst}
        return pools | {"layout": self.layout}
