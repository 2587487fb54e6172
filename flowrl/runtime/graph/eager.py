"""Eager execution: ops on concrete values run at once, with the same type rules."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from flowrl.errors import Location, ProgramError
from flowrl.functional.ragged import Ragged
from flowrl.ir.builder import GraphBuilder
from flowrl.ir.graph import Model, Node, Op, Value
from flowrl.ir.types import ModelType, TensorType, Type
from flowrl.runtime.graph.carry import no_rows
from flowrl.runtime.graph.interpret import Interpreter
from flowrl.runtime.graph.origins import SampleError, named
from flowrl.runtime.host import Host


class Concrete(Value):
    """A value that has its elements: what ops give on values of a session.

    Attributes:
        data: a `Ragged`, a scalar tensor, rows of data, or the handle of a model.
        session: where it belongs.
    """

    data: Any
    session: "Session"

    def __init__(self, type: Type, data: Any, session: "Session") -> None:
        super().__init__(type)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "session", session)

    def __float__(self) -> float:  # type: ignore[override]
        return float(self._scalar())

    def __bool__(self) -> bool:  # type: ignore[override]
        return bool(self._scalar())

    def __int__(self) -> int:  # type: ignore[override]
        return int(self._scalar())

    def __repr__(self) -> str:
        shown = self.data.rows() if isinstance(self.data, Ragged) and self.data.lengths else None
        return f"{self.type} = {self.data if shown is None else shown}"

    def _scalar(self) -> torch.Tensor:
        if isinstance(self.data, torch.Tensor) and self.data.numel() == 1:
            return self.data
        raise ProgramError(
            f"expected one number; got {self.type}", hint="reduce it first: `x.mean()`"
        )


class ConcreteModel(Concrete, Model):
    """A model that is loaded."""


class Session(GraphBuilder):
    """A builder that evaluates each node as it is added, and keeps none."""

    concrete = True

    def __init__(self, host: Host) -> None:
        super().__init__("session")
        self.host, self.steps = host, -1
        self.judges: dict[str, Value] = {}
        """The models that give rewards, by the reward's name."""

    def begin(self) -> None:
        """Start the next step: other seeds, the next learning rate."""
        self.steps += 1
        del self.counts["draw"]  # each step draws as a step of the compiled program does
        self.host.begin(self.steps, self.host.cursors)

    def value(self, type: Type, data: Any) -> Concrete:
        """Return a concrete value."""
        cls = ConcreteModel if isinstance(type, ModelType) else Concrete
        return cls(type, data, self)

    def resolve(self, value: Value, reader: str, loc: Location) -> Value:
        """Return a value of this session; what is used up, its engine refuses."""
        if isinstance(value, Concrete) and value.session is self:
            return value
        return super().resolve(value, reader, loc)

    def carried(self, name: str, types: Mapping[str, Type]) -> Mapping[str, Value]:
        """Return a buffer's first rows: none."""
        tensors = {leaf: type for leaf, type in types.items() if isinstance(type, TensorType)}
        return {leaf: self.value(t, no_rows(t.dtype, len(t.axes))) for leaf, t in tensors.items()}

    def models_of(self, rewards: Sequence[str]) -> dict[str, Value]:
        """Return the model of each of these rewards that a model gives."""
        return {name: self.judges[name] for name in rewards if name in self.judges}

    def report(self, name: str, rewards: Value) -> None:
        """Do nothing: the caller has the rewards at hand."""

    def _consume(self, op: Op, args: Sequence[Value], loc: Location) -> None:
        """Do nothing: the next version's number is what tells."""

    def _append(self, node: Node) -> tuple[Value, ...]:
        args = [arg.data if isinstance(arg, Concrete) else None for arg in node.args]
        try:
            results = Interpreter(self.host).evaluate(node, args, ())
        except SampleError as error:
            rows: dict[Value, Any] = {
                value: value.data for value in self.rows.values() if isinstance(value, Concrete)
            }
            raise named(error, rows) from error
        types = [value.type for value in node.results]
        return tuple(self.value(t, x) for t, x in zip(types, results, strict=True))
