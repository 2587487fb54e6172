"""vLLM in this process, and its own tensors as a training model's parameters."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast
from vllm import LLM, SamplingParams
from vllm.sampling_params import RequestOutputKind
from work import Work

GRAPHS = 512
"""Sequences for which vLLM captures CUDA graphs unless it is told more."""


class Sample(NamedTuple):
    """A sample's tokens, and their logprobs if they were asked for."""

    tokens: list[int]
    logprobs: list[float]


class Engine:
    """Samples, always by the model's newest weights.

    Args:
        work: the workload.
        logprobs: whether to ask vLLM for the logprob of each token.
    """

    def __init__(self, work: Work, *, logprobs: bool = False) -> None:
        self.work, self.shared = work, False
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        tokenizer = PreTrainedTokenizerFast.from_pretrained(work.model)
        texts = [json.loads(line)["prompt"] for line in Path(work.data).read_text().splitlines()]
        self.ids = [tokenizer(text)["input_ids"] for text in texts]
        graphs = {"compilation_config": {"max_cudagraph_capture_size": work.sequences}}
        self.llm = LLM(
            work.model,
            skip_tokenizer_init=True,
            gpu_memory_utilization=work.gpu_share,
            max_model_len=work.length + 8,
            max_num_seqs=work.sequences,
            logprobs_mode="processed_logprobs",
            enforce_eager=self.device == "cpu",
            **(graphs if work.sequences > GRAPHS else {}),
        )
        self.params = SamplingParams(
            n=work.samples,
            temperature=1.0,
            max_tokens=work.tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **({"logprobs": 0, "flat_logprobs": True} if logprobs else {}),
        )

    def prompts(self, step: int) -> list[list[int]]:
        """Return the prompts of a step."""
        return self.ids[step * self.work.prompts : (step + 1) * self.work.prompts]

    def generate(self, prompts: Sequence[list[int]]) -> list[Sample]:
        """Return the samples of all prompts, those of a prompt together."""
        asked: list[Any] = [{"prompt_token_ids": ids} for ids in prompts]
        done = self.llm.generate(asked, self.params, use_tqdm=False)
        return [
            Sample(list(one.token_ids), list(one.logprobs.logprobs) if one.logprobs else [])
            for request in done
            for one in request.outputs
        ]

    @torch.no_grad()
    def share(self, model: nn.Module) -> bool:
        """Let a model compute with vLLM's own tensors; not on a CPU, where vLLM packs them."""
        self.shared = self.device == "cuda"
        if self.shared:
            executor = self.llm.llm_engine.model_executor
            own = dict(executor.driver_worker.model_runner.get_model().named_parameters())
            for parameter, view in list(views(own, model)):
                parameter.data = view
        return self.shared

    def renew(self, model: nn.Module) -> None:
        """Give vLLM the model's weights, if it hasn't them, and drop its cache."""
        if not self.shared:
            weights = ((name, p.detach()) for name, p in model.named_parameters())
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        self.llm.reset_prefix_cache()


def views(own: dict[str, Tensor], model: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each parameter of a Llama or Qwen2 and the rows of vLLM's tensor that it is.

    Args:
        own: vLLM's tensors by name; queries, keys and values are one, as gates and ups are.
        model: transformers'.
    """
    joined = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"}
    joined |= {"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}
    filled: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        parts[-2] = joined.get(parts[-2], parts[-2])
        whole = ".".join(parts)
        start = filled.get(whole, 0)
        filled[whole] = start + len(parameter)
        yield parameter, own[whole].data[start : start + len(parameter)]
