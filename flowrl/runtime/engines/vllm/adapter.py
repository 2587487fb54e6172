"""Adapters in vLLM: each version is one of its own, which vLLM reads from a folder."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from torch import Tensor

from flowrl.errors import EngineError
from flowrl.runtime.model.lora import ADAPTER, Lora, save_adapter, scales_of
from flowrl.runtime.model.weights import shapes_of


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

    Attributes:
        scales: by what vLLM multiplies each matrix B as it reads an adapter, by name.
    """

    def __init__(self, llm: Any, outline: Any, path: str) -> None:
        self.llm, self.outline, self.path = llm, outline, path
        self.scales = scales_of(outline)
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
            raise self._base_alone("has lost", "would sample")
        return self.now

    def check(self, made: Sequence[Any]) -> None:
        """Refuse what was sampled without the adapter.

        Args:
            made: vLLM's results.

        Raises:
            EngineError: vLLM was not asked for it.
        """
        if any(_number(one.lora_request) != _number(self.now) for one in made):
            raise self._base_alone("was not asked for", "has sampled")

    def held(self) -> dict[str, Tensor]:
        """Return vLLM's own tensors of the adapter, by the trainer's names.

        Raises:
            EngineError: vLLM has none, or another one.
        """
        shapes = shapes_of(self.outline)
        (found,) = self.llm.apply_model(partial(matrices, number=_number(self.now), shapes=shapes))
        if found is None:
            raise self._base_alone("has no", "samples")
        return dict(found)

    def _base_alone(self, fault: str, does: str) -> EngineError:
        name = f"`{self.now.lora_name}`" if self.now else "adapter"
        return EngineError(
            f"vLLM {fault} {name} on `{self.path}`: it {does} from the base",
            hint="start the run again",
        )


def matrices(
    model: Any, number: int, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor] | None:
    """Return views of an adapter's matrices where vLLM computes with them; None if it has it not.

    A layer has a slot for each adapter, with room for a higher rank than its own. Of layers that
    vLLM joins, such as query, key and value, it has a tensor each. What it has in another form, as
    where a layer is several of its own, is left out.

    Args:
        model: vLLM's.
        number: of the adapter, as vLLM was told.
        shapes: of the trainer's parameters, by name.
    """
    manager = model.lora_manager
    if number not in manager.lora_index_to_id:
        return None
    slot, found = manager.lora_index_to_id.index(number), {}
    for joined, layer in manager.modules.items():
        names = manager.packed_modules.get(joined, [joined])
        for kind, stacked in ("A", layer.lora_a_stacked), ("B", layer.lora_b_stacked):
            wholes = [f"{name}.lora_{kind}.{ADAPTER}.weight" for name in names]
            for whole, tensor in zip(wholes, stacked, strict=False):
                if whole in shapes and len(names) == len(stacked):
                    rows, columns = shapes[whole]
                    found[whole] = tensor[slot, 0, :rows, :columns]
    return found


def _number(request: Any) -> int:
    """Return the number of the adapter that vLLM was asked for; 0 if for none."""
    return request.lora_int_id if request else 0
