"""Layouts: how a model's weights lie over the ranks of a pool, as data that plans carry."""

import math
import re
from collections.abc import Mapping

import attrs

from flowrl.errors import RunFileError, nearest

AXES = ("pp", "dp", "fsdp", "ep", "tp")
"""The axes of the mesh, the slowest first: neighbouring ranks differ in `tp`."""

WRITTEN = ("pp", "tp", "ep", "fsdp", "dp")
"""The order in which a layout's text names them."""

TERM = re.compile(r"([a-z]+) ?(\d+)( along tp)?( ?\+ ?ep)?")
FORM = "write axes and sizes joined by `x`: `fsdp8`, `tp2 x dp4`, `pp2 x tp4 x dp2`; `1` is one GPU"


def _size(layout: "Layout", field: "attrs.Attribute[int]", value: int) -> None:
    if value < 1:
        raise RunFileError(f"`{field.name}{value}` is not an axis of a layout", hint=FORM)


@attrs.frozen
class Layout:
    """A mesh of ranks, and what each of its axes does with a model's weights.

    Attributes:
        pp: stages of consecutive layers; embeddings on the first, heads on the last.
        dp: whole replicas.
        fsdp: shards as FSDP2 makes them, within the shards of the other axes.
        ep: experts are divided; all else is replicated.
        tp: tensors are divided by heads, columns, rows and vocabulary (Megatron-LM,
            arXiv:1909.08053, sec. 3).
        along_tp: `fsdp8 along tp`: FSDP divides the dim that `tp` would, not the first.
        whole_experts: `tp8+ep`: experts are divided over `ep` and `tp`, none is cut.
    """

    pp: int = attrs.field(default=1, validator=_size)
    dp: int = attrs.field(default=1, validator=_size)
    fsdp: int = attrs.field(default=1, validator=_size)
    ep: int = attrs.field(default=1, validator=_size)
    tp: int = attrs.field(default=1, validator=_size)
    along_tp: bool = False
    whole_experts: bool = False

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """Read `fsdp8`, `tp2 x dp4`, `tp8+ep`, `fsdp8 along tp`; the order says nothing.

        Raises:
            RunFileError: the text has another form, or an axis is unknown or named twice.
        """
        sizes: dict[str, int] = {}
        along_tp = whole_experts = False
        for term in [] if text.strip() == "1" else re.split(r"\s*[x*]\s*", text.strip()):
            axis, size, along, whole = _term(term, text)
            if axis in sizes:
                raise RunFileError(f"`{text}` names the axis `{axis}` twice", hint=FORM)
            sizes[axis] = size
            along_tp, whole_experts = along_tp or along, whole_experts or whole
        return cls(**sizes, along_tp=along_tp, whole_experts=whole_experts)

    @property
    def axes(self) -> Mapping[str, int]:
        """The size of every axis, the slowest first."""
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def size(self) -> int:
        """How many ranks it needs."""
        return math.prod(self.axes.values())

    def stride(self, axis: str) -> int:
        """Return by how many ranks neighbours along an axis are apart."""
        return math.prod(self.axes[faster] for faster in AXES[AXES.index(axis) + 1 :])

    def coordinates(self, index: int) -> Mapping[str, int]:
        """Return where the `index`-th of its ranks stands on every axis."""
        found: dict[str, int] = {}
        for axis in reversed(AXES):
            index, found[axis] = divmod(index, getattr(self, axis))
        return found

    def __str__(self) -> str:
        experts = "+ep" * self.whole_experts
        notes = {"fsdp": f" along tp{experts}"} if self.along_tp else {"tp": experts}
        written = [
            f"{axis}{self.axes[axis]}{notes.get(axis, '')}"
            for axis in WRITTEN
            if self.axes[axis] > 1 or notes.get(axis)
        ]
        return " x ".join(written) or "1"


def _term(term: str, text: str) -> tuple[str, int, bool, bool]:
    """Return axis and size, whether `along tp` and whether `+ep` follow."""
    match = TERM.fullmatch(term)
    axis = match[1] if match else term
    if not match or axis not in AXES:
        raise RunFileError(
            f"`{text}` is not a layout: `{term}`{nearest(axis, AXES)}",
            hint=f"the axes are {', '.join(WRITTEN)}; {FORM}",
        )
    along, whole = bool(match[3]), bool(match[4])
    if (along and axis != "fsdp") or (whole and axis != "tp" and not along):
        raise RunFileError(
            f"`{text}` is not a layout: `{term}`",
            hint="`along tp` follows `fsdp`, and `+ep` follows `tp`: `fsdp8 along tp`, `tp8+ep`",
        )
    return axis, int(match[2]), along, whole
