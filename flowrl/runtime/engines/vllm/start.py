"""vLLM's start: of what, with which settings, in which surroundings."""

from typing import Any

from flowrl.errors import EngineError
from flowrl.runtime.engines.vllm import adapter, transfer
from flowrl.runtime.engines.vllm.process import (
    class_apart,
    forget_rotations,
    own_threads,
    quiet,
    without_bars,
)
from flowrl.runtime.engines.vllm.ranks import division, launched
from flowrl.runtime.known_engines import FACTS
from flowrl.runtime.model.models import ModelSpec
from flowrl.runtime.ranks.ranks import Ranks

KNOWN = FACTS["vllm"]
GRAPHS = 512
"""Sequences that vLLM has CUDA graphs for by itself, if it may run as many."""


def check_dtype(spec: ModelSpec) -> None:
    """Refuse a dtype that vLLM doesn't compute in, or has no kernels of adapters for on a GPU.

    Raises:
        EngineError: it is another one than those.
    """
    hint = 'take engine = "hf", or another dtype'
    if spec.dtype not in KNOWN.dtypes:
        raise EngineError(
            f"vLLM computes in {' or '.join(KNOWN.dtypes)}; `{spec.path}` is to be in {spec.dtype}",
            hint=hint,
        )
    if spec.lora and spec.device != "cpu" and spec.dtype not in KNOWN.adapter_dtypes:
        raise EngineError(
            f"on a GPU vLLM computes adapters in {' or '.join(KNOWN.adapter_dtypes)}; `{spec.path}`"
            f" with one is to be in {spec.dtype}",
            hint=hint,
        )


def start(vllm: Any, spec: ModelSpec, decoder: type, ranks: Ranks, **chosen: Any) -> Any:
    """Return a vLLM, its `LLM`, with a model in it.

    Args:
        vllm: the module.
        spec: the model, and the device it is on.
        decoder: transformers' class of its layers' stack, which stays as it is.
        ranks: those that divide it. Each starts its own, at the same time.
        chosen: settings of vLLM's that don't follow from the model and its ranks.

    Raises:
        EngineError: vLLM can't run the model, or lacks memory for it.
        RankMissingError: another rank died, or did not come in time.
    """
    on_cpu = spec.device == "cpu"
    settings = {
        **(adapter.settings(spec.lora) if spec.lora else transfer.settings()),
        **division(ranks, on_cpu),
        **chosen,
    }
    starting = f"starting vLLM on {spec.path}"
    try:
        with (
            ranks.together(starting),
            quiet(),
            without_bars(),
            own_threads(),
            launched(ranks, spec.device),
            class_apart(decoder) as part,
        ):
            forget_rotations()
            llm = vllm.LLM(
                spec.path,
                dtype=spec.dtype,
                skip_tokenizer_init=True,
                generation_config="vllm",
                logprobs_mode="processed_logprobs",
                use_tqdm_on_load=False,
                enable_chunked_prefill=not on_cpu,  # a seeded sample can't be put off on a CPU
                **settings,
            )
            llm.apply_model(part)
            return llm
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(
            f"vLLM does not start on `{spec.path}`: {error}",
            hint="`max_model_len`, `max_num_seqs`, `kv_cache_gib` and `gpu_memory_utilization` of "
            'its table say how much memory it takes; engine = "hf" runs other models',
        ) from error


def at_once(count: int | None) -> dict[str, Any]:
    """Return vLLM's settings for so many sequences at once; none leaves the number to vLLM."""
    if count is None:
        return {}
    graphs = {"max_cudagraph_capture_size": count} if count > GRAPHS else {}
    return {"max_num_seqs": count, "compilation_config": graphs}


def cache_bytes(spec: ModelSpec, gib: float | None) -> int | None:
    """Return the size of the key-value cache; none leaves it to a share of the GPU's memory."""
    if gib is None and spec.device == "cpu":
        gib = KNOWN.cpu_cache_gib
    return None if gib is None else int(gib * 2**30)
