"""One parameter of a model: its name, its shape, and what its dims mean."""

import math
from enum import Enum

import attrs


class ParameterKind(Enum):
    """What a parameter does; a bias has the kind of its matrix."""

    EMBEDDING = "embedding"
    POSITIONS = "positions"
    NORM = "norm"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    QKV = "qkv"
    """Query, key and value in one matrix, in this order."""
    QKV_BY_HEAD = "qkv_by_head"
    """Query, key and value in one matrix, head by head (GPT-NeoX)."""
    OUTPUT = "output"
    """Out of attention, back to the hidden size."""
    GATE = "gate"
    UP = "up"
    GATE_UP = "gate_up"
    """Gate and up in one matrix, in this order."""
    DOWN = "down"
    LATENT = "latent"
    """Down to the low rank of multi-head latent attention; each rank needs all of it."""
    ROUTER = "router"
    SHARED_GATE = "shared_gate"
    """Hidden state to the weight of the expert that each token goes to."""
    HEAD = "head"
    """Of a language model: hidden state to vocabulary."""
    SCORE = "score"
    """Of a critic or a reward model: hidden state to one number."""


APART = {
    ParameterKind.EMBEDDING,
    ParameterKind.POSITIONS,
    ParameterKind.NORM,
    ParameterKind.ROUTER,
}
"""What no linear layer has."""


@attrs.frozen
class Parameter:
    """One parameter.

    Attributes:
        name: in transformers' state dict.
        shape: its dims.
        kind: what it does.
        layer: counted from 0; None outside the layers.
        output: the dim of outputs: a column-parallel split is along it. None for norms.
        input: the dim of inputs: a row-parallel split is along it. None for biases.
        experts: the dim that counts experts, if it holds several.
        tied: an embedding that is the language model's head too; then no head is listed.
    """

    name: str
    shape: tuple[int, ...]
    kind: ParameterKind
    layer: int | None = None
    output: int | None = None
    input: int | None = None
    experts: int | None = None
    tied: bool = False

    @property
    def count(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def is_linear(self) -> bool:
        """Whether a linear layer has it and nothing else does, as transformers runs the model."""
        return self.kind not in APART and self.experts is None

    @property
    def is_matrix(self) -> bool:
        """Whether activations are multiplied by it."""
        return self.input is not None and self.kind is not ParameterKind.POSITIONS
