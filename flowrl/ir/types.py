"""The types of values that flow along edges: a dtype and named axes, or a model."""

from collections.abc import Iterable
from enum import StrEnum

import attrs

from flowrl.errors import Location


class DType(StrEnum):
    """Element types, spelled as they print. `row` is a row of the data with its columns."""

    F32 = "f32"
    I32 = "i32"
    BOOL = "bool"
    ROW = "row"


@attrs.frozen
class Axis:
    """A named axis and the op that made it.

    Two axes of one name are the same only if one op made both: `token` and `token'2` differ.
    """

    name: str
    ordinal: int
    made_by: str = attrs.field(default="", eq=False)
    loc: Location | None = attrs.field(default=None, eq=False)

    def __str__(self) -> str:
        return self.name if self.ordinal == 1 else f"{self.name}'{self.ordinal}"

    def history(self) -> str:
        """Return who made this axis and where: `token'2 by score at grpo.py:9`."""
        return f"{self} by {self.made_by}" + (f" at {self.loc}" if self.loc else "")


@attrs.frozen
class Origin:
    """Where log-probabilities come from; only some may meet in a ratio or a KL.

    Attributes:
        model: the role of the model.
        version: how many updates the model has had in this step; None in rows of several steps.
        temperature: what its logits were divided by.
        top_p: the nucleus that its distribution was cut to; 1 is all of it.
        top_k: how many tokens it was cut to; 0 is all of them.
        min_tokens: before so many tokens no end could be sampled.
        sampled: reported by the engine that sampled, not recomputed.
    """

    model: str
    version: int | None
    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_tokens: int = 0
    sampled: bool = False

    @property
    def distribution(self) -> tuple[float, float, int, int]:
        """What must agree for two log-probabilities to be comparable."""
        return self.temperature, self.top_p, self.top_k, self.min_tokens

    def __str__(self) -> str:
        filters = f" top_p={self.top_p:g}" if self.top_p < 1 else ""
        filters += f" top_k={self.top_k}" if self.top_k else ""
        filters += f" min_tokens={self.min_tokens}" if self.min_tokens else ""
        engine = " sampled" if self.sampled else ""
        version = "*" if self.version is None else self.version
        return f"{self.model}.{version} T={self.temperature:g}{filters}{engine}"


@attrs.frozen
class TensorType:
    """An array whose axes are named; sizes are known only when it runs, and may be ragged."""

    dtype: DType
    axes: tuple[Axis, ...] = ()
    origin: Origin | None = None

    def __str__(self) -> str:
        origin = f"{{{self.origin}}}" if self.origin else ""
        return f"{self.dtype}[{', '.join(map(str, self.axes))}]{origin}"


@attrs.frozen
class ModelType:
    """One version of one model's weights, with its optimizer state; opaque to tensor ops.

    Attributes:
        role: the argument of the program.
        version: how many updates it has had in this step.
        snapshot: whether it is a copy that stays as it is.
        layout: how the weights lie over the ranks of their pool; "" is whole, on one.
    """

    role: str
    version: int = attrs.field(default=0, eq=False)
    snapshot: bool = False
    layout: str = ""

    def __str__(self) -> str:
        parts = [self.role, *(["snapshot"] if self.snapshot else []), self.layout]
        return f"model<{', '.join(filter(None, parts))}>"


@attrs.frozen
class SelectionType:
    """Which rows are kept, in which order: from old axes to fresh ones."""

    axes: tuple[tuple[Axis, Axis], ...]

    def rename(self, type: TensorType) -> TensorType:
        """Return the type of `type` after the selection."""
        fresh = dict(self.axes)
        return attrs.evolve(type, axes=tuple(fresh.get(axis, axis) for axis in type.axes))

    def __str__(self) -> str:
        return f"selection[{', '.join(str(new) for _, new in self.axes)}]"


@attrs.frozen
class MinibatchesType:
    """A sequence of selections: the minibatches of each epoch, in order."""

    selection: SelectionType

    def __str__(self) -> str:
        return f"minibatches[{', '.join(str(new) for _, new in self.selection.axes)}]"


def of_any_step(type: TensorType) -> TensorType:
    """Return the type of the same rows of this step and of those before."""
    origin = attrs.evolve(type.origin, version=None) if type.origin else None
    return attrs.evolve(type, origin=origin)


Type = TensorType | ModelType | SelectionType | MinibatchesType


def f32(*axes: Axis) -> TensorType:
    """Return a float32 type."""
    return TensorType(DType.F32, axes)


def i32(*axes: Axis) -> TensorType:
    """Return an integer type."""
    return TensorType(DType.I32, axes)


def boolean(*axes: Axis) -> TensorType:
    """Return a bool type."""
    return TensorType(DType.BOOL, axes)


def axes_of(types: Iterable[Type]) -> list[Axis]:
    """Return the axes of tensors among `types`, each once, in order of appearance."""
    tensors = [type for type in types if isinstance(type, TensorType)]
    return list(dict.fromkeys(axis for type in tensors for axis in type.axes))
