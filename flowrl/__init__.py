"""flowrl: reinforcement learning of language models as typed dataflow programs."""

from typing import Any

from flowrl import ops
from flowrl.errors import FlowrlError
from flowrl.ir.graph import Model, Value
from flowrl.ir.program import Carry, Program, program
from flowrl.ir.records import Examples, Pairs, Prompts, Record, Rollouts
from flowrl.ops.custom import op
from flowrl.stages import Compiled, Lowered, Traced, trace


def session(**options: Any) -> Any:
    """Return a session: models and prompts on which programs run eagerly, op by op.

    `with fl.session(rewards={"reward": f}) as s: policy = s.model("policy", path)`; see
    `flowrl.train.session.EagerSession` for the options.
    """
    from flowrl.train.session import EagerSession

    return EagerSession(**options)


__all__ = [
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
    "op",
    "ops",
    "program",
    "session",
    "trace",
]
