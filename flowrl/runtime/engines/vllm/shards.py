"""What one of several ranks has of each weight, and how vLLM's own loaders take it."""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from math import ceil
from typing import Any

import attrs
import torch
from torch import Tensor

from flowrl.ir.sections import Span, section_spans
from flowrl.runtime.model.tensor_parallel import divided
from flowrl.runtime.model.weights import weights_of
from flowrl.runtime.ranks.ranks import Ranks

VOCABULARY_MULTIPLE = 64
"""vLLM pads the vocabulary to a multiple of it before it divides it."""


@attrs.frozen
class Shard:
    """What a rank has of a weight.

    Attributes:
        whole: the shape of all of it.
        dim: along which it is divided.
        spans: what is here, in coordinates of the whole dim, one behind another; None for all.
    """

    whole: tuple[int, ...]
    dim: int = 0
    spans: tuple[Span, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is here."""
        if self.spans is None:
            return self.whole
        size = sum(stop - start for start, stop in self.spans)
        return (*self.whole[: self.dim], size, *self.whole[self.dim + 1 :])

    def spread(self, own: Tensor) -> Tensor:
        """Return what is here in its place in a whole weight, of which the rest is NaN.

        vLLM's loaders take whole weights and read of them what is their rank's. Had they another
        part in mind than this one, the first sample would be NaN.
        """
        if self.spans is None:
            return own
        made = own.new_full(self.whole, torch.nan)
        ends = accumulate((stop - start for start, stop in self.spans), initial=0)
        for (start, stop), (first, last) in zip(self.spans, pairwise(ends), strict=True):
            made.narrow(self.dim, start, stop - start).copy_(
                own.narrow(self.dim, first, last - first)
            )
        return made


def shards_of(outline: Any, ranks: Ranks) -> dict[str, Shard]:
    """Return what a rank has of each weight, by transformers' names.

    Args:
        outline: a transformers model, without storage.
        ranks: those that divide it, by heads, columns, rows and tokens of the vocabulary.

    Raises:
        EngineError: transformers declares no way to divide the model, or heads or columns don't
            divide evenly.
    """
    cut = dict(_divided(outline, ranks)) if ranks.count > 1 else {}
    return {
        name: Shard(tuple(tensor.shape), *cut.get(name, ()))
        for name, tensor in weights_of(outline).items()
    }


def _divided(outline: Any, ranks: Ranks) -> Iterator[tuple[str, tuple[int, tuple[Span, ...]]]]:
    """Yield the dim and the spans of each weight that is divided."""
    for name, module, columns, sections in divided(outline, ranks.count):
        spans = section_spans(sections, ranks.index, ranks.count)
        for key, _ in module.named_parameters():
            if columns or key == "weight":
                yield f"{name}.{key}", (0 if columns else 1, spans)
    ends = {id(outline.get_input_embeddings()), id(outline.get_output_embeddings())}
    for name, module in outline.named_modules():
        if id(module) in ends:
            for key, parameter in module.named_parameters():
                yield f"{name}.{key}", (0, (vocabulary_span(len(parameter), ranks),))


def vocabulary_span(size: int, ranks: Ranks) -> Span:
    """Return a rank's tokens; padding, past the end of the vocabulary, is left out."""
    each = ceil(ceil(size / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE / ranks.count)
    return min(ranks.index * each, size), min((ranks.index + 1) * each, size)
