"""flowrl: reinforcement learning of language models as typed dataflow programs."""

from typing import TYPE_CHECKING, Any

from flowrl import ops
from flowrl.errors import FlowrlError
from flowrl.ir.graph import Model, Value
from flowrl.ir.program import Carry, Program, program
from flowrl.ir.records import Buffer, Examples, Pairs, Prompts, Record, Rollouts
from flowrl.ops.correction import corrected
from flowrl.ops.custom import op
from flowrl.stages import Compiled, Lowered, Traced, trace

if TYPE_CHECKING:
    from flowrl.train.session import EagerSession as session


def __getattr__(name: str) -> Any:
    """Return `fl.session`, imported when it is first used: looking at programs needs no torch."""
    if name != "session":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flowrl.train.session import EagerSession

    return EagerSession


__all__ = [
    "Buffer",
    "Carry",
    "Compiled",
    "Examples",
    "FlowrlError",
    "Lowered",
    "Model",
    "Pairs",
    "Program",
    "Prompts",
    "Record",
    "Rollouts",
    "Traced",
    "Value",
    "corrected",
    "op",
    "ops",
    "program",
    "session",
    "trace",
]
