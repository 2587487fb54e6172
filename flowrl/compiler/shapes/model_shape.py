"""A model as the planner sees it: its parameters, and what a token costs."""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from flowrl.compiler.shapes.blocks import linear, norm, table, under
from flowrl.compiler.shapes.dimensions import Config, Dimensions, read_dimensions
from flowrl.compiler.shapes.families import FAMILIES, Family
from flowrl.compiler.shapes.parameter import Parameter, ParameterKind
from flowrl.errors import EngineError, nearest
from flowrl.ops.model import Head


@attrs.frozen(cache_hash=True)
class ModelShape:
    """The sizes of a model.

    Attributes:
        family: transformers' `model_type`.
        head: what stands on the last layer.
        dimensions: its sizes.
    """

    family: str
    head: Head
    dimensions: Dimensions

    @classmethod
    def from_config(cls, config: Mapping[str, Any], head: Head = "lm") -> "ModelShape":
        """Read a transformers config; no weights are needed.

        Raises:
            EngineError: the family is unknown, or a size is missing or none.
        """
        family = str(config.get("model_type"))
        if family not in FAMILIES:
            raise EngineError(
                f"the planner knows no models of type `{family}`{nearest(family, FAMILIES)}",
                hint=f"it knows {', '.join(FAMILIES)}",
            )
        read = Config(config, FAMILIES[family].defaults)
        return cls(family, head, read_dimensions(read))

    @classmethod
    def from_folder(cls, folder: Path | str, head: Head = "lm") -> "ModelShape":
        """Read the config.json of a model's folder.

        Raises:
            EngineError: there is none, or it cannot be read.
        """
        file = Path(folder) / "config.json"
        try:
            config = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise EngineError(
                f"`{file}` cannot be read: {error}",
                hint="give a folder that `save_pretrained` wrote",
            ) from error
        if not isinstance(config, dict):
            raise EngineError(
                f"`{file}` holds no config: got {config!r}",
                hint="give a folder that `save_pretrained` wrote",
            )
        return cls.from_config(config, head)

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return self.dimensions.layers

    @property
    def hidden(self) -> int:
        """The size of a token's hidden state."""
        return self.dimensions.hidden

    @property
    def heads(self) -> int:
        """Query heads a layer."""
        return self.dimensions.heads

    @property
    def kv_heads(self) -> int:
        """Key and value heads a layer."""
        return self.dimensions.kv_heads

    @property
    def vocab(self) -> int:
        """Tokens of the vocabulary, padding included."""
        return self.dimensions.vocab

    @property
    def experts(self) -> int:
        """Experts a sparse layer; 0 for a dense model."""
        return self.dimensions.experts.count if self.dimensions.experts else 0

    def parameters(self) -> tuple[Parameter, ...]:
        """Return every parameter, in the order of the layers; tied weights once."""
        return self._parameters

    @cached_property
    def _parameters(self) -> tuple[Parameter, ...]:
        return tuple(_parameters(self.dimensions, FAMILIES[self.family], self.head))

    @cached_property
    def count(self) -> int:
        """How many numbers its parameters hold."""
        return sum(parameter.count for parameter in self._parameters)

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Return the KV cache of one token in all layers.

        Sliding windows count as full attention: an upper bound. Latent attention caches the
        low-rank state and one rotary key (arXiv:2405.04434, sec. 2.1.3).
        """
        d = self.dimensions
        latent = d.latent and d.latent.kv_rank + d.latent.rope
        return d.layers * (latent or 2 * d.kv_heads * d.head_dim) * bytes_per_element

    def flops_per_token(self, context: float, *, head: bool = True) -> float:
        """Return the operations of one token's forward pass.

        Twice the parameters of the matrices that it goes through, and queries times keys and
        weights times values for each of the `context` positions that it attends to (Kaplan et al.
        2020, arXiv:2001.08361, sec. 2.1). `head=False` leaves out the product with the head.
        """
        return self.body_flops + self.attention_flops * context + head * self.head_flops

    @cached_property
    def body_flops(self) -> float:
        """Operations of one token in the layers' matrices."""
        inside = (p for p in self._parameters if p.is_matrix and p.layer is not None)
        return 2.0 * sum(self._active(parameter) for parameter in inside)

    @cached_property
    def head_flops(self) -> float:
        """Operations of one token in the head, or both heads."""
        kinds = (ParameterKind.HEAD, ParameterKind.SCORE)
        return 2.0 * sum(
            p.count for p in self._parameters if p.is_matrix and (p.kind in kinds or p.tied)
        )

    @cached_property
    def attention_flops(self) -> float:
        """Operations of one token for each position that it attends to."""
        d = self.dimensions
        key = d.latent.nope + d.latent.rope if d.latent else d.head_dim
        value = d.latent.value if d.latent else d.head_dim
        return 2.0 * d.layers * d.heads * (key + value)

    def _active(self, parameter: Parameter) -> int:
        """Return how many numbers of it a token meets: of experts, those that it is routed to."""
        experts = self.dimensions.experts
        if parameter.experts is None or experts is None:
            return parameter.count
        return parameter.count * experts.per_token // experts.count


def _parameters(d: Dimensions, family: Family, head: Head) -> Iterator[Parameter]:
    language = head in ("lm", "lm+value")
    kind, tied = ParameterKind.EMBEDDING, d.tied and language
    yield from under(family.body, table(family.embedding, kind, d.vocab, d.hidden, tied=tied))
    if family.positions:
        positions = table(family.positions, ParameterKind.POSITIONS, d.positions, d.hidden)
        yield from under(family.body, positions)
    for layer in range(d.layers):
        prefix = f"{family.body}.{family.layers}.{layer}"
        yield from under(prefix, family.layer(d, layer), layer)
    yield from under(family.body, norm(family.final_norm, d.hidden, bias=family.norm_bias))
    if language and not tied:
        yield from linear("lm_head", ParameterKind.HEAD, d.vocab, d.hidden)
    if head != "lm":
        yield from _score(family, head, d.hidden)


def _score(family: Family, head: Head, hidden: int) -> Iterator[Parameter]:
    name = {"lm+value": "value_head", "reward": "score"}.get(head, family.classifier)
    yield from linear(name, ParameterKind.SCORE, 1, hidden, bias=head != "reward")
