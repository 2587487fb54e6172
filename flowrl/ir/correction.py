"""What tracing knows of a program whose policy gradient is weighted: see `fl.corrected`."""

from collections.abc import Mapping
from typing import Any

import attrs

from flowrl.ir.graph import Model, Value


@attrs.define(eq=False)
class Correction:
    """The weights of one trace.

    Attributes:
        options: of `ops.importance_weights`.
        samplers: the model that sampled, by what it recomputed of its samples.
        terms: how many terms of losses are weighted so far.
    """

    options: Mapping[str, Any]
    samplers: dict[Value, Model] = attrs.field(factory=dict)
    terms: int = 0
