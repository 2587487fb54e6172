"""Calls of the functions behind tensor ops: what they get, and what is wrong with what they give.

Functions of `flowrl.functional` are trusted; those that users write are not.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import attrs
import optree
import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.functional.refusals import SampleRefusedError
from flowrl.ir.graph import Node, Value
from flowrl.ir.types import Axis, DType, TensorType
from flowrl.ops.tensor import Per, TensorOp
from flowrl.runtime.graph.origins import SampleError
from flowrl.runtime.rows.form import Form

DTYPES = {DType.I32: torch.int64, DType.BOOL: torch.bool}


@cache
def builtin(function: str) -> Callable[..., Any]:
    """Return the function of `flowrl.functional` that is called `module:name`."""
    module, name = function.split(":")
    found: Callable[..., Any] = getattr(import_module(f"flowrl.functional.{module}"), name)
    return found


@cache
def _options(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of what comes after `*`: an argument may be called `lengths` too."""
    parameters = signature(function).parameters.values()
    return frozenset(p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)


@attrs.frozen(eq=False)
class Call:
    """The function of a tensor op, ready to be called."""

    op: TensorOp
    node: Node
    function: Callable[..., Any]
    accepted: frozenset[str]

    @classmethod
    def of(cls, op: TensorOp, node: Node) -> "Call":
        """Return the call that a node makes."""
        function = op.user or builtin(op.function)
        return cls(op, node, function, _options(function))

    def __call__(
        self, flat: list[Tensor], axes: Sequence[tuple[Axis, ...]], forms: Sequence[Form]
    ) -> list[Any]:
        """Return the results on flat tensors that have been broadcast to `axes`, nested so.

        Raises:
            EngineError: the function raised, or returned another number of tensors.
        """
        form = max(forms, key=lambda form: len(form.lengths), default=Form())
        options: dict[str, Any] = {k: v for k, v in self.op.params if k in self.accepted}
        if "lengths" in self.accepted:
            options["lengths"] = form.lengths[-1] if form.lengths else None
        if "groups" in self.accepted and form.lengths:
            options["groups"] = form.groups()
        if not self._at_once():
            return self._one_by_one(flat, options, axes, forms)
        try:
            return self._results(flat, options)
        except SampleRefusedError as error:
            raise self._of_sample(error, max(axes, key=len), form) from error

    def check(self, x: Any, value: Value, form: Form) -> Tensor:
        """Return one result as a tensor of the elements of `value`.

        Raises:
            EngineError: it has another number of elements, there is NaN in it, or it doesn't fit
                the dtype.
        """
        found = self._tensor(x)
        type = value.type
        assert isinstance(type, TensorType)
        expected = form.size(len(type.axes)) if type.axes else 1
        if found.numel() != expected:
            each = f"{found.numel()} from its calls, one a {self.op.per.value}"
            came = f"a tensor of shape {tuple(found.shape)}" if self._at_once() else each
            raise self._error(
                f"must return {_counted(expected, 'element')} for {type}; got {came}",
                f"with per={self.op.per.value!r} it returns an element for each of its result type",
            )
        if self.op.user is None:
            return found
        found = self._converted(found, type)
        undefined = int(found.detach().isnan().sum())
        if undefined:
            raise self._error(
                f"returned NaN in {undefined} of {_counted(expected, 'element')}",
                "look for 0 / 0, and for the log of what is below 0",
            )
        return found

    def _tensor(self, x: Any) -> Tensor:
        try:
            return torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError):
            raise self._error(
                f"must return tensors; got {type(x).__name__}",
                f"its signature is {self.op.signature}",
            ) from None

    def _converted(self, x: Tensor, type: TensorType) -> Tensor:
        """Return a result in the dtype of its type; whole numbers aren't made by rounding."""
        found = x.to(DTYPES.get(type.dtype, torch.get_default_dtype()))
        changed = x[found.to(x.dtype) != x]
        if type.dtype in DTYPES and changed.numel():
            wanted = "True and False" if type.dtype is DType.BOOL else "whole numbers"
            raise self._error(
                f"must return {wanted} for {type}; got {changed[0].item():g}",
                "round or compare in the function, or write f32 in its signature",
            )
        return found

    def _at_once(self) -> bool:
        whole = self.op.user is None or self.op.per in (Per.TOKEN, Per.BATCH)
        return whole or not self.accepted.isdisjoint(("lengths", "groups"))

    def _one_by_one(
        self,
        flat: list[Tensor],
        options: Mapping[str, Any],
        axes: Sequence[tuple[Axis, ...]],
        forms: Sequence[Form],
    ) -> list[Tensor]:
        """Call the function for each sample or group, and join what it returns."""
        names = [axis.name for axis in max(axes, key=len)]
        unit = names.index("sample") if self.op.per is Per.SAMPLE and "sample" in names else 0
        placed = zip(flat, axes, forms, strict=True)
        columns = [form.units(x, len(of), unit) for x, of, form in placed]
        parts: list[list[Tensor]] = [[] for _ in self.op.signature.results]
        for args in zip(*columns, strict=True):
            for column, part in zip(parts, self._results(args, options), strict=True):
                column.append(self._tensor(part).reshape(-1))
        return [torch.cat(column) if column else torch.zeros(0) for column in parts]

    def _results(self, args: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
        result = self._guarded(args, options)
        results = list(result) if isinstance(result, tuple) else [result]
        count = len(self.op.signature.results)
        if len(results) == count:
            return results
        raise self._error(
            f"must return {_counted(count, 'tensor')}; got {_counted(len(results), 'tensor')}",
            f"its signature is {self.op.signature}; several results are a tuple",
        )

    def _guarded(self, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Call the function; say where in the program it failed."""
        if self.op.user is not None:  # it may write to what it gets, which others read as well
            args, options = optree.tree_map(_copy, (list(args), dict(options)))
        try:
            return self.function(*args, **options)
        except Exception as error:
            if self.op.user is not None:
                text = f"raised {type(error).__name__}: {error}"
            elif isinstance(error, ValueError) and not isinstance(error, SampleRefusedError):
                text = f"refused: {error}"  # an option or a size, in the function's words
            else:
                raise
            shapes = ", ".join(str(tuple(x.shape)) for x in args if isinstance(x, Tensor))
            hint = f"it was called with tensors of shapes {shapes}, per={self.op.per.value!r}"
            raise self._error(text, hint) from error

    def _of_sample(
        self, error: SampleRefusedError, axes: tuple[Axis, ...], form: Form
    ) -> SampleError:
        """Return the error of a sample that the function refused, by its place."""
        prompt, sample = error.sample, None
        if len(axes) > 1 and axes[1].name == "sample":
            groups = form.groups()
            prompt = int(groups[error.sample])
            sample = int((groups[: error.sample] == prompt).sum())
        return SampleError(
            f"{self.op.name}: the function refused: {error}",
            where=self.node.loc.excerpt(),
            hint="look for 0 / 0, the log of 0 or an overflow in what this sample gives; "
            "`ops.usable(x)` says where x is finite",
            axis=axes[0],
            prompt=prompt,
            sample=sample,
        )

    def _error(self, text: str, hint: str) -> EngineError:
        problem = f"{self.op.name}: the function {text}"
        return EngineError(problem, where=self.node.loc.excerpt(), hint=hint)


def _copy(x: Any) -> Any:
    return x.clone() if isinstance(x, Tensor) else x


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
