"""The vllm engine: samples with vLLM in this process, on a GPU or on CPUs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from flowrl.errors import EngineError
from flowrl.runtime.engine import Completion, Request, Sampling
from flowrl.runtime.engines.vllm.adapter import Adapters
from flowrl.runtime.engines.vllm.inbox import Inbox
from flowrl.runtime.engines.vllm.process import (
    end_alone,
    import_vllm,
    may_sleep,
    quiet,
    scratch,
    work_in,
)
from flowrl.runtime.engines.vllm.samples import StopStrings, completion, parameters
from flowrl.runtime.engines.vllm.shards import shards_of
from flowrl.runtime.engines.vllm.start import KNOWN, at_once, cache_bytes, check_dtype, start
from flowrl.runtime.engines.vllm.transfer import WeightTransfer
from flowrl.runtime.engines.vllm.weights import clear_cache, repack_tied
from flowrl.runtime.engines.vllm.whole import Whole
from flowrl.runtime.model.models import ModelSpec, check_device, outline
from flowrl.runtime.model.value_head import without_value_head
from flowrl.runtime.model.weights import check_weights, shapes_of
from flowrl.runtime.ranks.ranks import ALONE, Ranks
from flowrl.runtime.sampling.refusals import broken, check_prompts, check_sampling, limits_of
from flowrl.runtime.sampling.stopping import Stops


class VLLMGenerator:
    """Samples from a language model with vLLM.

    A sample depends on its seed and on what is computed beside it: vLLM batches as it likes, so
    logprobs are equal to rounding, and tokens wherever rounding decides nothing.

    Args:
        spec: the model, of which the language head is read, in float32 or bfloat16.
        tokenizer: gives the end of sequence, and the text in which stop strings are looked for.
        ranks: those that divide the model. They are given the same requests and sample the same
            tokens; each starts a vLLM of its own, at the same time.
        gpu_memory_utilization: share of the device's memory for weights, activations and cache.
        kv_cache_gib: size of the key-value cache instead; on a CPU 1 if not given.
        max_model_len: most tokens of a prompt and its completion; the model's if not given.
        max_num_seqs: most sequences that run at once, with CUDA graphs for as many; vLLM's choice
            if not given.
        enforce_eager: run layer by layer, without compilation and CUDA graphs; on a CPU if not
            given.

    Raises:
        EngineError: there is no vLLM here, or it can't run this model.
    """

    def __init__(
        self,
        spec: ModelSpec,
        tokenizer: Any,
        *,
        ranks: Ranks = ALONE,
        gpu_memory_utilization: float = 0.9,
        kv_cache_gib: float | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        enforce_eager: bool | None = None,
    ) -> None:
        check_dtype(spec)
        check_device(spec)
        on_cpu = spec.device == "cpu"
        self.spec, self.tokenizer, self.ranks = spec, tokenizer, ranks
        self.version, self.loads = 0, 0
        self.outline = outline(spec)
        shards = shards_of(self.outline, ranks)
        self.eager = on_cpu if enforce_eager is None else enforce_eager
        self.vllm = import_vllm()
        self.may_sleep = on_cpu or may_sleep()
        self.llm = start(
            self.vllm,
            spec,
            type(self.outline.get_decoder()),
            ranks,
            **at_once(max_num_seqs),
            max_model_len=max_model_len,
            gpu_memory_utilization=gpu_memory_utilization,
            kv_cache_memory_bytes=cache_bytes(spec, kv_cache_gib),
            enforce_eager=self.eager,
            enable_sleep_mode=not on_cpu and self.may_sleep,
        )
        self.scratch = scratch()
        end_alone(self.llm, self.scratch)
        self.inbox = Inbox(self.llm, spec, shards)
        self.whole = Whole(self.llm)
        self.strings = StopStrings(self.llm)
        self.transfer = WeightTransfer(self.llm)
        self.adapters = Adapters(self.llm, self.outline, spec.path)

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Copy new weights into vLLM's own tensors, or add an adapter; a value head is left out.

        Weights are whole ones: each rank copies its part.

        Raises:
            EngineError: a tensor is unknown, missing or of another shape.
        """
        weights = without_value_head(weights)
        check_weights(self.outline, weights, shapes_of(self.outline))
        self._take(weights.items())
        self.version, self.loads = version, self.loads + 1

    def _take(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        with quiet():
            if self.spec.lora:
                self.adapters.load(dict(weights))
            else:
                self.transfer.take(weights)

    def stored(self) -> dict[str, Tensor]:
        """Return tensors for what this rank has of new weights, by name; see `Inbox`."""
        return self.inbox.tensors()

    def renewed(self, version: int) -> None:
        """Give vLLM what is in `stored`, unless it was written into its own tensors."""
        if self.inbox.direct:
            self.llm.apply_model(repack_tied)
        else:
            self._take(self.inbox.whole())
        self.version, self.loads = version, self.loads + 1

    def lent(self) -> dict[str, Tensor]:
        """Return vLLM's own tensors by transformers' names, for a trainer to compute with.

        Raises:
            EngineError: vLLM stores them in another form, or they are divided over ranks.
        """
        if self.ranks.count > 1:
            raise EngineError(f"{self.ranks.count} ranks divide them")
        return self.inbox.own()

    @property
    def cache_version(self) -> int:
        """What the prefix cache's keys begin with."""
        return self.loads

    def held(self) -> dict[str, Tensor]:
        """Return vLLM's own tensors by transformers' names; none of what it has in another form.

        On a CPU that is all but norms and the embedding. Where ranks divide them, it is this rank's
        parts; of a model with an adapter that alone: the base never changes.

        Raises:
            EngineError: vLLM has lost the adapter.
        """
        return self.adapters.held() if self.spec.lora else self.inbox.readable()

    @property
    def scales(self) -> dict[str, float]:
        """By what vLLM has multiplied matrices of an adapter, by name."""
        return self.adapters.scales

    def sleep(self, *, keep: bool = True) -> None:
        """Give the GPU's memory back: weights go to the host if kept, the cache is dropped.

        The base of an adapter doesn't come anew, so is kept.

        Raises:
            EngineError: another engine of this process has the memory that can be given back.
        """
        if not self.may_sleep:
            raise EngineError(
                f"vLLM lets only the first engine of a process sleep; that of `{self.spec.path}` "
                "isn't the first",
                hint="let it be `resident`, or sample from one of the models in another pool",
            )
        self.inbox.empty()
        if self.spec.device != "cpu":
            self.llm.sleep(level=1 if keep or self.spec.lora else 2)
        self.loads += 1  # the cache is gone

    def wake(self) -> None:
        """Take the memory again, and the weights back."""
        if self.spec.device != "cpu":
            self.llm.wake_up()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Return n completions for each request; all are computed together.

        Raises:
            EngineError: a prompt is empty, too long or not of this vocabulary, or `sampling`
                describes no distribution, or one that vLLM doesn't sample from.
            RankMissingError: another rank died, or did not come in time.
        """
        vocabulary, _ = limits_of(self.outline.config)
        check_sampling(sampling, vocabulary)
        if not KNOWN.samples_at(sampling.temperature):
            raise EngineError(
                f"vLLM samples at {KNOWN.range}; got {sampling.temperature}",
                hint='take engine = "hf", or another temperature',
            )
        check_prompts(requests, sampling, vocabulary, self.llm.model_config.max_model_len)
        asked = [request for request in requests if request.n]
        stops = Stops(sampling, self.tokenizer)
        groups = iter(self._sample(asked, sampling, stops) if asked else ())
        return [next(groups) if request.n else [] for request in requests]

    def _sample(
        self, requests: Sequence[Request], sampling: Sampling, stops: Stops
    ) -> Iterator[list[Completion]]:
        """Yield the completions of each request; vLLM seeds its sample i with seed + i."""
        prompts = [
            {"prompt_token_ids": list(request.prompt), "cache_salt": str(self.loads)}
            for request in requests
        ]
        asked = [parameters(self.vllm, request, sampling, stops) for request in requests]
        self.whole.on, self.strings.stops = not sampling.stop, stops
        with quiet(), torch.compiler.set_stance("force_eager" if self.eager else "default"):
            made = self._run(prompts, asked)
        for request, one in zip(requests, made, strict=True):
            if not all(all(map(isfinite, sample.logprobs.logprobs)) for sample in one.outputs):
                self.llm.collective_rpc(clear_cache)
                raise broken(self.spec.path, self.version)
            done = [completion(sample, sampling) for sample in one.outputs]
            yield done * (request.n // len(done))  # greedy ones are all the same

    def _run(self, prompts: Sequence[Any], asked: Sequence[Any]) -> list[Any]:
        """Return vLLM's own results; an engine that has failed would wait for ever."""
        self.transfer.check()
        if self.llm.llm_engine.has_unfinished_requests():
            raise EngineError(
                "vLLM failed earlier, or was interrupted, while it sampled",
                hint="start the run again",
            )
        work_in(self.scratch)
        adapter = self.adapters.ready()
        what = f"sampling {len(prompts)} requests from {self.spec.path}"
        try:
            with self.ranks.together(what):
                made: list[Any] = self.llm.generate(
                    prompts, asked, lora_request=adapter, use_tqdm=False
                )
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(
                f"vLLM failed: {type(error).__name__}: {error}",
                hint="if it lacks memory, lower `gpu_memory_utilization` or `sequences_per_block`; "
                'engine = "hf" samples without it',
            ) from error
        self.adapters.check(made)
        return made
