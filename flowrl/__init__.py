"""flowrl: reinforcement learning of language models as typed dataflow programs."""

from flowrl import ops
from flowrl.errors import FlowrlError
from flowrl.ir.graph import Model, Value
from flowrl.ir.program import Carry, Program, program
from flowrl.ir.records import Examples, Pairs, Prompts, Record, Rollouts
from flowrl.ops.custom import op
from flowrl.stages import Compiled, Lowered, Traced, trace

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
    "trace",
]
