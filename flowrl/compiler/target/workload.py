"""What a step has to do: how many prompts, how long, and how each role computes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import attrs

from flowrl.compiler.gigabytes import gigabytes
from flowrl.compiler.target.lengths import Lengths

PROMPT, RESPONSE = Lengths.of(256), Lengths.of({"mean": 600, "max": 1024})


Offload = Literal["none", "optimizer", "all"]
"""What a trainer has in host memory: nothing; AdamW's moments, but for the time of a step; or all
that it keeps, where weights are divided."""


@attrs.frozen
class Reserve:
    """GPU memory that an engine has from its start to its end, and gives back only as it sleeps.

    Attributes:
        title: what messages call the engine.
        share: of each GPU's memory, for weights, activations and cache.
        cache_bytes: of the cache on each GPU; if None, all that the share leaves.
    """

    title: str
    share: float
    cache_bytes: int | None = None

    def on(self, memory_bytes: int) -> str:
        """Return in words what it is on a GPU of so many bytes."""
        if self.cache_bytes is not None:
            return f"{self.title} reserves {gigabytes(self.cache_bytes)} for its cache"
        size = gigabytes(self.share * memory_bytes)
        return f"{self.title} reserves {size}, {self.share:g} of the GPU"


@attrs.frozen
class Settings:
    """How one role's model is held and run.

    Attributes:
        weight_bytes: of one weight in forward passes.
        table_bytes: of one that no linear layer has, of tables, norms, experts; the same if None.
        gradient_bytes: of one accumulated gradient.
        master_bytes: of one master weight; 0 where weights are as wide as gradients.
        moment_bytes: of AdamW's two moments of one weight.
        kv_bytes: of one number in the KV cache.
        microbatch_tokens: packed into one forward pass of a trainer or scorer.
        head_tokens: of which the logits exist at once.
        checkpointing: layers keep their input only and run forward again before their backward.
        offload: what is in host memory.
        offload_activations: the inputs that checkpointed layers keep are in host memory meanwhile.
        compiled: layers run as few kernels; activations travel less.
        sequences: that one engine runs at once, at most; None is as many as its cache holds.
        kv_share: of the memory that weights leave free, what an engine takes as KV cache.
        reserve: what the engine that samples takes instead, whatever its samples need.
        evaluates: whether an engine that samples for evaluations alone, so has no seat in a step,
            stays beside the trainer: what it keeps is taken there.
        lends: whether the engine that samples lets the trainer compute with its own tensors.
    """

    weight_bytes: int = 2
    table_bytes: int | None = None
    gradient_bytes: int = 4
    master_bytes: int = 4
    moment_bytes: int = 8
    kv_bytes: int = 2
    microbatch_tokens: int = 4096
    head_tokens: int = 4096
    checkpointing: bool = False
    offload: Offload = "none"
    offload_activations: bool = False
    compiled: bool = False
    sequences: int | None = 1024
    kv_share: float = 0.9
    reserve: Reserve | None = None
    evaluates: bool = False
    lends: bool = True


DEFAULT = Settings()


@attrs.frozen
class Workload:
    """A step.

    Attributes:
        prompts: drawn in a step, or in one round of `sample_until`.
        prompt_tokens: of a prompt.
        response_tokens: of a response.
        rounds: expected of `sample_until`.
        roles: settings of those that don't run by the default.
        default: settings of all others.
    """

    prompts: float = 64
    prompt_tokens: Lengths = PROMPT
    response_tokens: Lengths = RESPONSE
    rounds: float = 1
    roles: Mapping[str, Settings] = MappingProxyType({})
    default: Settings = DEFAULT

    @property
    def sequence_tokens(self) -> float:
        """Expected tokens of a prompt with its response."""
        return self.prompt_tokens.mean + self.response_tokens.mean

    def settings(self, role: str) -> Settings:
        """Return how a role's model is held and run."""
        return self.roles.get(role, self.default)
