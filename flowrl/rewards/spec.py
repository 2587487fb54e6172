"""What the run file says of one reward."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
from attrs.validators import ge, gt


@attrs.frozen
class RewardSpec:
    """One reward function and how it is called.

    The function is `f(prompts, completions, **columns) -> list[float]`: texts, and the rows'
    columns, as lists of equal length; arguments are passed by name and only if it takes them.
    """

    function: str | Callable[..., Any]
    """`path.py:name`, `package.module:name` or `reasoning_gym:TASK`. A callable is sent to the
    workers by name if it can be imported; a lambda, closure or object is called in this process,
    with the same checks and without a time limit."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Keyword arguments of the function; of the task's scorer for `reasoning_gym:TASK`."""
    time_limit: float = attrs.field(default=10.0, validator=gt(0))
    """Seconds that one call may take."""
    batch: int = attrs.field(default=64, validator=ge(1))
    """Most completions in one call."""
