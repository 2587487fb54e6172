"""Requests as vLLM takes them, and completions as it gives them."""

from typing import Any

import torch

from flowrl.runtime.engine import Completion, Request, Sampling
from flowrl.runtime.sampling.stopping import Stops


def parameters(vllm: Any, request: Request, sampling: Sampling, stops: Stops) -> Any:
    """Return vLLM's parameters of a request; greedy completions are all the same, so are one."""
    return vllm.SamplingParams(
        n=request.n if sampling.temperature else 1,
        seed=request.seed,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        ignore_eos=True,  # `stops` says what ends a completion
        stop_token_ids=stops.tokens.tolist(),
        stop=list(sampling.stop),
        detokenize=bool(sampling.stop),
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        include_stop_str_in_output=True,
        logprobs=0,  # of the sampled token alone
        flat_logprobs=True,  # in one list, without an object a token
    )


def completion(made: Any, sampling: Sampling, stops: Stops) -> Completion:
    """Return a sample of vLLM's; greedy ones have the logprob 0.

    vLLM looks for stop strings one token after `min_tokens`: a string that ends there ends it here.
    """
    tokens, logprobs = list(made.token_ids), list(made.logprobs.logprobs)
    assert made.logprobs.token_ids == tokens, "one logprob a token"
    if not sampling.temperature:
        logprobs = [0.0] * len(tokens)
    count = sampling.min_tokens
    if sampling.stop and 0 < count <= len(tokens):
        tail = torch.tensor([tokens[max(0, count - stops.window - 1) : count]])
        if stops.reached(tail, count).item():
            return Completion(tokens[:count], logprobs[:count], truncated=False)
    return Completion(tokens, logprobs, truncated=made.finish_reason == "length")
