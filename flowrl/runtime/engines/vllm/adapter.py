"""Adapters in vLLM: each version is one of its own, which vLLM reads from a folder."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from torch import Tensor

from flowrl.errors import EngineError
from flowrl.runtime.model.lora import Lora, save_adapter


def settings(lora: Lora) -> dict[str, Any]:
    """Return what vLLM is started with for an adapter.

    Raises:
        EngineError: vLLM has no room for one of that rank.
    """
    ranks = sorted(get_args(import_module("vllm.config.lora").MaxLoRARanks))
    room = next((rank for rank in ranks if rank >= lora.rank), None)
    if room is None:
        raise EngineError(
            f"vLLM takes adapters of rank {ranks[-1]} at most; got {lora.rank}",
            hint='take a lower rank, or engine = "hf"',
        )
    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": room}


class Adapters:
    """The adapter that an engine samples with; before the first, the base alone: B starts at zero.

    Args:
        llm: vLLM's, started with `settings`.
        outline: the model with an adapter, without storage.
        path: of the base.
    """

    def __init__(self, llm: Any, outline: Any, path: str) -> None:
        self.llm, self.outline, self.path = llm, outline, path
        self.request_of: Any = import_module("vllm.lora.request").LoRARequest
        self.now: Any = None

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Have vLLM read an adapter, under a number that none has had: nothing is cached of it."""
        before = self.now.lora_int_id if self.now else 0
        if before:
            self.llm.llm_engine.remove_lora(before)
        there = {name: x.detach().cpu().contiguous() for name, x in weights.items()}
        with TemporaryDirectory(prefix="adapter-") as folder:
            save_adapter(self.outline, Path(folder), there, self.path)
            self.now = self.request_of(f"adapter {before + 1}", before + 1, folder)
            try:
                self.llm.llm_engine.add_lora(self.now)
            except Exception as error:
                raise EngineError(
                    f"vLLM can't read the adapter on `{self.path}`: {error}",
                    hint='leave layers out of its `targets`, or take engine = "hf"',
                ) from error

    def ready(self) -> Any:
        """Return the adapter that is to be sampled with, as vLLM is asked for it.

        Raises:
            EngineError: vLLM has lost it, and would sample from the base.
        """
        if self.now and self.now.lora_int_id not in self.llm.llm_engine.list_loras():
            raise EngineError(
                f"vLLM has lost `{self.now.lora_name}` on `{self.path}`: it would sample from the "
                "base",
                hint="start the run again",
            )
        return self.now
