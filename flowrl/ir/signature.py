"""Type rules written as types: `f32[..., token], bool[..., token] -> f32[...]`."""

import re
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

import attrs

from flowrl.ir.types import Axis, DType, TensorType, Type

ELLIPSIS = "..."
TYPE = re.compile(r"\s*(\w+)\[([\w\s,.]*)\]\s*")
DTYPES = ("any", "number", *DType)


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
        if not arrow:
            raise ValueError(f"expected `type, type -> type`; got {text!r}")
        args, results = tuple(_patterns(left)), tuple(_patterns(right))
        _check_results(args, results)
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
            raise TypeRuleError(
                f"takes {len(self.args)} arguments, {self}; got {len(types)}",
                arg=None,
                hint=f"give {', '.join(self.names)}",
            )
        tensors = [self._tensor(index, type) for index, type in enumerate(types)]
        bound: dict[str, tuple[Axis, ...]] = {}
        for index in sorted(range(len(tensors)), key=lambda i: -len(tensors[i].axes)):
            self._bind(index, tensors, bound)
        return tensors, bound

    def _tensor(self, index: int, type: Type) -> TensorType:
        if isinstance(type, TensorType) and self.args[index].accepts(type.dtype):
            return type
        raise self._unlike(index, type, {})

    def _unlike(self, index: int, type: Type, bound: dict[str, tuple[Axis, ...]]) -> TypeRuleError:
        pattern = self.args[index]
        rest = ""
        if ELLIPSIS in pattern.names and ELLIPSIS in bound:
            rest = f", where `...` is {', '.join(map(str, bound[ELLIPSIS])) or 'no axis'}"
        return TypeRuleError(
            f"`{self.names[index]}` must be {pattern}{rest}; got {type}",
            arg=index,
            hint=_advice(pattern, type),
        )

    def _bind(
        self, index: int, types: list[TensorType], bound: dict[str, tuple[Axis, ...]]
    ) -> None:
        pattern, axes = self.args[index], types[index].axes
        known = {name for name in pattern.names if name in bound}
        if known == set(pattern.names):
            expected = _axes(pattern, bound)
            if axes != expected[: len(axes)]:
                self._mismatch(index, types, TensorType(types[index].dtype, expected))
            return
        found = match(pattern.names, axes, bound)
        if found is None:
            raise self._unlike(index, types[index], bound)
        bound.update(found)

    def _mismatch(self, index: int, types: list[TensorType], expected: TensorType) -> NoReturn:
        got = types[index]
        broadcast = ", or the first axes of that" if expected.axes else ""
        pairs = zip(got.axes, expected.axes, strict=False)
        differing = next(((a, b) for a, b in pairs if a != b), None)
        clash = f" ({differing[1].history()}; {differing[0].history()})" if differing else ""
        raise TypeRuleError(
            f"`{self.names[index]}` must be {expected}{broadcast}; got {got}{clash}",
            arg=index,
            hint=JOIN if differing else _advice(self.args[index], got),
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
    ends = (*axes[: len(head)], *axes[len(axes) - len(tail) :])
    named = list(zip((*head, *tail), ends, strict=True))
    if any(axis.name != name for name, axis in named):
        return None
    found: dict[str, tuple[Axis, ...]] = {name: (axis,) for name, axis in named}
    if at < len(names):
        found[ELLIPSIS] = middle
    agrees = all(bound.get(name, axis) == axis for name, axis in found.items())
    return found if agrees else None


def _axes(pattern: Pattern, bound: dict[str, tuple[Axis, ...]]) -> tuple[Axis, ...]:
    return tuple(axis for name in pattern.names for axis in bound.get(name, ()))


JOIN = (
    "use values that came out of the same op (`ops.score` and `ops.select` return the rows again, "
    "less the dropped ones), or join them by row with `ops.align(x, to=rollouts)`"
)


def _advice(pattern: Pattern, type: Type) -> str:
    """Return how to make what is wanted of what is there."""
    if not isinstance(type, TensorType):
        return "this op takes values, such as `rollouts.logprobs`, and no models"
    if pattern.dtype == "bool" and type.dtype is not DType.BOOL:
        return "make a condition by comparing: `x > 0`"
    if pattern.dtype == "f32" and type.dtype in (DType.BOOL, DType.I32):
        return "make it a number: `x.float()`"
    names = [axis.name for axis in type.axes]
    if "token" in names and "token" not in pattern.names:
        return "reduce over the tokens first: `x.sum(over='token', mask=rollouts.mask)`"
    if names and not pattern.names:
        return "reduce it first: `x.mean()`"
    missing = [name for name in pattern.names if name not in (*names, ELLIPSIS)]
    return (
        f"it needs an axis `{missing[0]}`" if missing else "its axes must be these, in this order"
    )


def _check_results(args: Sequence[Pattern], results: Sequence[Pattern]) -> None:
    known = {name for pattern in args for name in pattern.names}
    for pattern in results:
        lost = [name for name in pattern.names if name not in known]
        if lost:
            raise ValueError(f"the result {pattern} has `{lost[0]}`, which no argument has")
        if pattern.dtype == "number":
            raise ValueError(f"the result {pattern} must have one dtype: f32, i32, bool or any")


@cache
def _patterns(text: str) -> list[Pattern]:
    parts = [TYPE.fullmatch(part) for part in re.split(r",(?![^\[]*\])", text)]
    found = [(match[1], match[2]) for match in parts if match]
    if len(found) < len(parts) or any(dtype not in DTYPES for dtype, _ in found):
        raise ValueError(
            f"expected types such as `f32[prompt, sample]`, of {', '.join(DTYPES)}; "
            f"got {text.strip()!r}"
        )
    patterns = []
    for dtype, inside in found:
        names = tuple(name.strip() for name in inside.split(",") if name.strip())
        if len(set(names)) < len(names):
            raise ValueError(f"{dtype}[{inside}] names an axis twice")
        patterns.append(Pattern(dtype, names))
    return patterns
