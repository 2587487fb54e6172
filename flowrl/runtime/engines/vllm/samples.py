"""Requests as vLLM takes them, what ends their samples, and completions as it gives them."""

from functools import partial
from typing import Any

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
        detokenize=False,  # `StopStrings` reads text
        logprobs=0,  # of the sampled token alone
        flat_logprobs=True,  # in one list, without an object a token
    )


class StopStrings:
    """Has samples of an engine end with their stop strings, by the rule of every engine.

    vLLM's own reader of text takes what a prompt leaves of a character for the completion's, and
    with it the text before; and it holds text back until its last character is whole.

    Args:
        llm: vLLM's.

    Attributes:
        stops: what ends the samples that are asked for next.
    """

    def __init__(self, llm: Any) -> None:
        self.stops: Stops | None = None
        processor = llm.llm_engine.output_processor
        self.states, self.add_request = processor.request_states, processor.add_request
        processor.add_request = self.add

    def add(self, request: Any, *given: Any, **named: Any) -> None:
        """Add a request, one for each sample, to those that vLLM reads the tokens of."""
        self.add_request(request, *given, **named)
        if self.stops and self.stops.strings:
            reader = self.states[request.request_id].detokenizer
            reader.update = partial(_update, reader, reader.update, self.stops)


def _update(reader: Any, take: Any, stops: Stops, new: list[int], ended: bool) -> str | None:
    """Have vLLM's reader take a sample's newest token; return what vLLM is to give as reason."""
    take(new, ended)
    tokens = reader.token_ids
    if len(tokens) < stops.min_tokens or not stops.spelled([tokens[-stops.window - 1 :]])[0]:
        return None
    return "stop string"


def completion(made: Any, sampling: Sampling) -> Completion:
    """Return a sample of vLLM's; greedy ones have the logprob 0."""
    tokens, logprobs = list(made.token_ids), list(made.logprobs.logprobs)
    assert made.logprobs.token_ids == tokens, "one logprob a token"
    if not sampling.temperature:
        logprobs = [0.0] * len(tokens)
    return Completion(tokens, logprobs, truncated=made.finish_reason == "length")
