"""Type rules written as types: `f32[..., token], bool[..., token] -> f32[...]`."""

import re
from functools import cache
from typing import NoReturn

import attrs

from flowrl.ir.types import Axis, DType, TensorType, Type, histories

ELLIPSIS = "..."


class TypeRuleError(Exception):
    """Raised inside a type rule; the builder adds the op, the line and where the value was made."""

    def __init__(self, problem: str, *, arg: int | None = 0, hint: str = "") -> None:
        super().__init__(problem)
        self.problem, self.arg, self.hint = problem, arg, hint


@attrs.frozen
class Pattern:
    """One side of a signature: a dtype (`any` of them) and axis names, `...` for any axes."""

    dtype: str
    names: tuple[str, ...]

    def accepts(self, dtype: DType) -> bool:
        """Return whether elements of `dtype` fit."""
        return self.dtype in ("any", dtype) or (self.dtype == "number" and dtype != DType.ROW)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(self.names)}]"


@attrs.frozen
class Signature:
    """A type rule: patterns of the arguments and of the results.

    A name stands for one axis of that name, the same in every place. `...` stands for the same
    axes in every place. An argument may lack the last axes of its pattern: it is broadcast, as
    `f32[prompt, sample]` is into `f32[prompt, sample, token]`.
    """

    args: tuple[Pattern, ...]
    results: tuple[Pattern, ...]
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, names: tuple[str, ...] = ()) -> "Signature":
        """Return the signature that `text` writes; `names` of the arguments are for messages.

        Raises:
            ValueError: `text` isn't of that form.
        """
        left, arrow, right = text.partition("->")
        args = tuple(_patterns(left))
        results = tuple(_patterns(right))
        if not arrow or not results:
            raise ValueError(f"expected `type, type -> type`; got {text!r}")
        return cls(args, results, names or tuple(f"argument {i + 1}" for i in range(len(args))))

    def infer(self, types: tuple[Type, ...]) -> tuple[TensorType, ...]:
        """Return the types of the results, or raise TypeRuleError."""
        tensors, bound = self._bound(types)
        dtypes = [tensors[0].dtype if r.dtype == "any" else DType(r.dtype) for r in self.results]
        return tuple(
            TensorType(dtype, _axes(pattern, bound))
            for dtype, pattern in zip(dtypes, self.results, strict=True)
        )

    def broadcast(self, types: tuple[Type, ...]) -> list[tuple[Axis, ...]]:
        """Return the axes that each argument has once it is broadcast."""
        bound = self._bound(types)[1]
        return [_axes(pattern, bound) for pattern in self.args]

    def _bound(
        self, types: tuple[Type, ...]
    ) -> tuple[list[TensorType], dict[str, tuple[Axis, ...]]]:
        if len(types) != len(self.args):
            raise TypeRuleError(f"takes {len(self.args)} arguments; got {len(types)}", arg=None)
        tensors = [self._tensor(index, type) for index, type in enumerate(types)]
        bound: dict[str, tuple[Axis, ...]] = {}
        for index in sorted(range(len(tensors)), key=lambda i: -len(tensors[i].axes)):
            self._bind(index, tensors, bound)
        return tensors, bound

    def _tensor(self, index: int, type: Type) -> TensorType:
        if isinstance(type, TensorType) and self.args[index].accepts(type.dtype):
            return type
        raise TypeRuleError(
            f"`{self.names[index]}` must be {self.args[index]}; got {type}", arg=index
        )

    def _bind(self, index: int, types: list[TensorType], bound: dict[str, tuple[Axis, ...]]) -> None:
        pattern, axes = self.args[index], types[index].axes
        known = {name for name in pattern.names if name in bound}
        if known == set(pattern.names):
            expected = _axes(pattern, bound)
            if axes != expected[: len(axes)]:
                self._mismatch(index, types, TensorType(types[index].dtype, expected))
            return
        found = match(pattern.names, axes, bound)
        if found is None:
            raise TypeRuleError(
                f"`{self.names[index]}` must be {pattern}; got {types[index]}", arg=index
            )
        bound.update(found)

    def _mismatch(self, index: int, types: list[TensorType], expected: TensorType) -> NoReturn:
        clash = histories([types[index], *types])
        raise TypeRuleError(
            f"`{self.names[index]}` must be {expected} or broadcast into it; got {types[index]}"
            + (f" (axes: {clash})" if clash else ""),
            arg=index,
            hint=_hint(clash),
        )

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.args))} -> {', '.join(map(str, self.results))}"


def match(
    names: tuple[str, ...], axes: tuple[Axis, ...], bound: dict[str, tuple[Axis, ...]]
) -> dict[str, tuple[Axis, ...]] | None:
    """Return what each name of a pattern stands for in `axes`, or None if it doesn't fit."""
    at = names.index(ELLIPSIS) if ELLIPSIS in names else len(names)
    head, tail = names[:at], names[at + 1 :]
    if len(axes) < len(head) + len(tail) or (at == len(names) and len(axes) != len(head)):
        return None
    middle = axes[len(head) : len(axes) - len(tail)]
    found = {name: (axis,) for name, axis in zip(head, axes, strict=False)}
    found |= {name: (axis,) for name, axis in zip(tail, axes[len(axes) - len(tail) :], strict=True)}
    if any(axis.name != name for name, (axis,) in found.items()):
        return None
    if at < len(names):
        found[ELLIPSIS] = middle
    agrees = all(bound.get(name, axis) == axis for name, axis in found.items())
    return found if agrees else None


def _axes(pattern: Pattern, bound: dict[str, tuple[Axis, ...]]) -> tuple[Axis, ...]:
    return tuple(axis for name in pattern.names for axis in bound.get(name, ()))


def _hint(clash: str) -> str:
    if not clash:
        return ""
    return (
        "use values that came out of the same op (`score` and `select` return the rows again, "
        "less the dropped ones), or join them by row with `ops.align(x, to=rollouts)`"
    )


@cache
def _patterns(text: str) -> list[Pattern]:
    found = re.findall(r"\s*(\w+)\[([^\]]*)\]\s*(?:,|$)", text)
    known = {"any", "number", *DType}
    if not found or any(dtype not in known for dtype, _ in found):
        raise ValueError(f"expected types such as `f32[prompt, sample]`; got {text.strip()!r}")
    split = [(dtype, tuple(n.strip() for n in names.split(",") if n.strip())) for dtype, names in found]
    return [Pattern(dtype, names) for dtype, names in split]
