"""The tables of a run file that say what computes: `[engines]` and those in it."""

from typing import Literal

import attrs

from flowrl.config.toml.structure import OPEN_TO
from flowrl.config.toml.types import AboveZero, Count, Mass, NotNegative, Positive
from flowrl.runtime.known_engines import FACTS, Facts


@attrs.frozen
class VLLMTable:
    """What the engine `vllm` is started with."""

    gpu_memory_utilization: Mass | None = None
    """Share of a GPU's memory for weights, activations and key-value cache, which the engine holds
    from its start to its end, also while others work, unless its residency is `offload` or `drop`.
    If not given: 0.9 where nothing else lives in its pool, 0.4 where a trainer or another model
    does; with the executor `local`, all live in one pool."""
    kv_cache_gib: AboveZero | None = None
    """Size of the key-value cache instead, held as long; on a CPU 1 GiB if not given."""
    max_model_len: Positive | None = None
    """Most tokens of a prompt and its completion together; the model's positions if not given."""
    max_num_seqs: Positive | None = None
    """Most sequences that run at once, with CUDA graphs for as many; if not given, vLLM's choice by
    the GPU, with graphs for 512 at most."""
    enforce_eager: bool | None = None
    """Run without compilation and CUDA graphs; true on a CPU if not given."""


@attrs.frozen
class GenerateTable:
    """How a role samples."""

    engine: str = "hf"
    """Engine that samples: `hf`, transformers' own forward; `vllm`."""
    temperature: NotNegative | None = None
    """Divides the logits; 0 is greedy; the program's if not given."""
    top_p: Mass | None = None
    """Smallest probability mass to sample from; all of it if not given."""
    top_k: Count | None = None
    """Number of most likely tokens to sample from; 0, or not given: all."""
    max_tokens: Positive = 256
    """Most tokens in a completion."""
    min_tokens: Count = 0
    """Tokens before a completion may stop."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion."""
    sequences_per_block: Positive | None = None
    """Sequences that are computed together, so that results don't depend on the number of replicas.
    If not given: 64 with `hf`; with `vllm`, which batches by itself, all that a worker samples."""
    vllm: VLLMTable | None = None
    """What the engine `vllm` is started with."""

    @property
    def facts(self) -> Facts:
        """What is known of the engine, which is one that there is."""
        return FACTS[self.engine]

    @property
    def together(self) -> int | None:
        """How many sequences are computed together; None for all of a worker's."""
        return self.sequences_per_block or self.facts.sequences


@attrs.frozen
class TrainerTable:
    """How a role is run forward and trained."""

    engine: str = "torch"
    """Engine that trains and computes logprobs and values."""
    tokens_per_microbatch: Positive = 4096
    """Most tokens, prompt and completion, in a forward pass; it bounds memory, not results."""
    packing: Literal["packed", "padded"] | None = None
    """Layout of a microbatch; padded on a CPU and packed on a GPU if not given."""
    attention: Literal["auto", "flash_attn", "varlen", "flex", "sdpa"] = "auto"
    """Attention kernel. `flash_attn` (the package), `varlen` and `flex` (torch's) are for packed
    rows on GPUs, the first two in bfloat16; `sdpa` uses a dense mask. `auto`: the first of them, in
    this order, that is available and right for the model."""
    compile: bool = False
    """Compile layers, and what reads logits, with torch, once for any number of tokens: less time
    and memory in each step, and a minute before the first."""
    checkpointing: bool = False
    """Activation checkpointing: layers keep only their inputs, and run forward again before their
    backward: less memory, more time, the same results."""
    offload_activations: bool = False
    """With `checkpointing`: the inputs that layers keep wait in host memory."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What is kept in host memory. `optimizer`: AdamW's moments, except during a step. `all`, with
    `fsdp2`: weights, gradients and optimizer state, and the step is taken there; a layer's weights
    are on the GPU while they are gathered."""
    shard: Literal["none", "fsdp2"] = "none"
    """`none`: weights are whole. `fsdp2`: weights, gradients and optimizer state are sharded over
    the workers of its pool, which divide the rows of each microbatch among them."""
    reshard_after_forward: bool = True
    """With `fsdp2`: free a layer's gathered weights after its forward; if false they stay until its
    backward, which takes more memory and less time."""


@attrs.frozen
class RoleTable:
    """The engines of one role."""

    generate: GenerateTable = attrs.field(factory=GenerateTable)
    """How it samples."""
    train: TrainerTable = attrs.field(factory=TrainerTable)
    """How it is run forward and trained."""


@attrs.frozen
class EnginesTable:
    """What computes. Every other key is a role of `[models]`, or a reward that a model gives."""

    threads: Positive = 1
    """CPU threads that an engine is pinned to."""
    roles: dict[str, RoleTable] = attrs.field(factory=dict, metadata={OPEN_TO: dict})

    def role(self, role: str) -> RoleTable:
        """Return a role's engines, with defaults where the run file is silent."""
        return self.roles.get(role, RoleTable())

    @property
    def divided(self) -> list[str]:
        """The roles whose weights are to be divided over the workers of their pool."""
        return [role for role, table in self.roles.items() if table.train.shard == "fsdp2"]
