"""The inbox of one vLLM: the tensors into which other ranks write new weights."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.runtime.engines.vllm.shards import Shard
from flowrl.runtime.engines.vllm.weights import own_tensors, readable
from flowrl.runtime.model.models import DTYPES, ModelSpec


class Inbox:
    """What one rank's new weights are written into, by transformers' names.

    That is parts of vLLM's own tensors where it has the weights as they are; else, as it packs them
    for a CPU or has them in another form, tensors beside them, which it is given when all have
    come.

    Args:
        llm: vLLM's.
        spec: its model.
        shards: what this rank has of each weight.

    Attributes:
        direct: whether they are vLLM's own.
    """

    def __init__(self, llm: Any, spec: ModelSpec, shards: Mapping[str, Shard]) -> None:
        self.llm, self.shards = llm, shards
        self.dtype, self.device = DTYPES[spec.dtype], spec.device
        self.direct = False
        self._tensors: dict[str, Tensor] = {}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors, to be written in place."""
        if not self._tensors:
            try:
                return self.own()
            except EngineError:
                self._tensors, self.direct = self._beside(), False
        return self._tensors

    def own(self) -> dict[str, Tensor]:
        """Return vLLM's own tensors, which new weights are written into from now on.

        Raises:
            EngineError: it has some in another form.
        """
        self._tensors, self.direct = self._read(own_tensors), True
        return self._tensors

    def readable(self) -> dict[str, Tensor]:
        """Return those of vLLM's own tensors that it has as they are."""
        return self._read(readable)

    def whole(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what was written, each in its place in a whole weight."""
        for name, own in self._tensors.items():
            yield name, self.shards[name].spread(own)

    def empty(self) -> None:
        """Let tensors beside vLLM's own go."""
        if not self.direct:
            self._tensors = {}

    def _read(self, read: Callable[..., dict[str, Tensor]]) -> dict[str, Tensor]:
        shapes = {name: shard.shape for name, shard in self.shards.items()}
        own: dict[str, Tensor]
        (own,) = self.llm.apply_model(partial(read, shapes=shapes, dtype=self.dtype))
        return own

    def _beside(self) -> dict[str, Tensor]:
        return {
            name: torch.empty(shard.shape, dtype=self.dtype, device=self.device)
            for name, shard in self.shards.items()
        }
