"""What the run file says of one reward."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs.validators import ge, gt

Function = str | Callable[..., Any]
"""`path.py:name`, `package.module:name`, `reasoning_gym:TASK`, or a callable.

A callable is sent to the workers by name if it can be imported; a lambda, a closure, an object or
a function of the running script is called in this process, with the same checks and without a
time limit.
"""


@attrs.frozen
class RewardSpec:
    """One reward and how it is called.

    A function is `f(prompts, completions, **columns) -> list[float]`: texts, and the rows'
    columns, as lists of equal length; arguments are passed by name, and only those it takes.
    It may be an `async def`.
    """

    function: Function | Mapping[str, Function] = attrs.field()
    """`path.py:name`, `package.module:name` or `reasoning_gym:TASK`; or a table of these, by the
    value of the column `by`."""
    by: str = "data_source"
    """The column that selects one of several functions."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Keyword arguments of the function; of the task's scorer for `reasoning_gym:TASK`."""
    time_limit: float = attrs.field(default=10.0, validator=gt(0))
    """Seconds that one call may take; importing the functions may take 60."""
    batch: int = attrs.field(default=64, validator=ge(1))
    """Most completions in one call."""

    @function.validator
    def _at_least_one(self, _: object, function: Function | Mapping[str, Function]) -> None:
        if function in ("", {}):
            raise ValueError("`function` must name a function")
        for name in self.functions.values():
            if isinstance(name, str) and "://" in name:
                raise ValueError(f"`function` can't be an address, as `http` can: `{name}`")

    @property
    def functions(self) -> dict[str, Function]:
        """The functions by the value that picks them; "" picks the only one."""
        if isinstance(self.function, Mapping):
            return dict(self.function)
        return {"": self.function}
