"""Data movement; only the compiler makes these."""

import attrs

from flowrl.ir.graph import Op
from flowrl.ir.types import Type


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
