"""The engines that there are, by name, and facts of those that sample; none is imported."""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Literal

import attrs

GENERATORS = {
    "hf": "flowrl.runtime.engines.hf:HFGenerator",
    "vllm": "flowrl.runtime.engines.vllm.generator:VLLMGenerator",
}
SCORERS = {"torch": "flowrl.runtime.engines.torch_scorer:TorchScorer"}
TRAINERS = {"torch": "flowrl.runtime.engines.torch:TorchTrainer"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "generate": GENERATORS,
    "score": SCORERS,
    "train": TRAINERS,
}
"""Engines by use and name. A new engine is a file and a line here, and one in `FACTS`."""


@attrs.frozen
class Facts:
    """What is known of an engine that samples before it is imported.

    Attributes:
        title: what messages call it.
        lends: whether a trainer can compute with its own tensors.
        repacks: whether it stores some weights in another form than transformers does, and on a CPU
            all of them: those it can't lend.
        reorders: a module whose rows it has in another order than transformers, by the last part of
            its name.
        takes: how weights are brought to it: each parameter as transformers stores it, or as vLLM's
            loaders take it (the planner's `Storage`).
        dtypes: that it computes in.
        temperatures: the lowest and the highest that it samples at, besides 0.
        adapter_rank: the highest rank of an adapter that it takes.
        adapter_dtypes: in which it computes adapters on a GPU.
        reserves: the share of a GPU's memory that it has from its start to its end, if it takes
            one: where it has the GPU alone, and where others work on it too.
        cpu_cache_gib: of its key-value cache on a CPU, where the run file is silent.
        sequences: that it is given at once where the run file is silent; None, all of a worker's,
            for one that chooses itself how many it computes.
    """

    title: str
    lends: bool = False
    repacks: bool = False
    reorders: str = ""
    takes: Literal["model", "loader"] = "model"
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float64")
    temperatures: tuple[float, float] = (0.0, inf)
    adapter_rank: float = inf
    adapter_dtypes: tuple[str, ...] = ("float32", "bfloat16", "float64")
    reserves: tuple[float, float] | None = None
    cpu_cache_gib: float | None = None
    sequences: int | None = None

    def samples_at(self, temperature: float) -> bool:
        """Whether it samples at a temperature."""
        low, high = self.temperatures
        return not temperature or low <= temperature <= high

    def reordered(self, weight: str) -> str:
        """Return what is said of a weight whose rows it has in another order; "" of any other."""
        if not self.reorders or f".{self.reorders}." not in weight:
            return ""
        return f"{self.title} has the rows of `{weight}` in another order"

    @property
    def range(self) -> str:
        """The temperatures that it samples at, in words."""
        low, high = self.temperatures
        return f"temperature 0, and from {low:g}" + (f" to {high:g}" if high < inf else "")


FACTS: Mapping[str, Facts] = MappingProxyType(
    {
        # a lower temperature takes logits out of float32's range
        "hf": Facts("hf", lends=True, sequences=64, temperatures=(1e-6, inf)),
        "vllm": Facts(
            "vLLM",
            lends=True,
            repacks=True,
            reorders="query_key_value",  # transformers: head by head; vLLM: queries, keys, values
            takes="loader",
            dtypes=("float32", "bfloat16"),
            temperatures=(0.01, 2.0),  # below, vLLM samples at 0.01
            adapter_rank=512,
            adapter_dtypes=("bfloat16",),  # its kernels' own; on a CPU it has none
            reserves=(0.9, 0.4),
            cpu_cache_gib=1.0,
        ),
    }
)
"""Facts of every engine of `GENERATORS`."""
