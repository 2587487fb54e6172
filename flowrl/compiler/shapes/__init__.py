"""Model shapes: parameters, KV bytes and FLOPs of a model, from its config alone."""

from flowrl.compiler.shapes.adapter import AdapterShape
from flowrl.compiler.shapes.known import KNOWN, known_shape
from flowrl.compiler.shapes.model_shape import ModelShape
from flowrl.compiler.shapes.parameter import Parameter, ParameterKind

__all__ = ["KNOWN", "AdapterShape", "ModelShape", "Parameter", "ParameterKind", "known_shape"]
