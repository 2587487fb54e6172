"""Samples that leave vLLM's scheduler whole: without work in Python for each of their tokens."""

from collections import defaultdict
from typing import Any

import attrs


@attrs.define
class Growing:
    """A sample that isn't finished: its tokens, and what the model's output says of each.

    Attributes:
        tokens: as the scheduler took them.
        seen: the same, as the logprobs' rows name them.
        logprobs: of `seen`.
    """

    tokens: list[int] = attrs.field(factory=list)
    seen: list[int] = attrs.field(factory=list)
    logprobs: list[float] = attrs.field(factory=list)

    def add(self, output: Any, seen: int, logprob: float) -> None:
        """Add what a step of the model has brought."""
        self.tokens += output.new_token_ids
        self.seen.append(seen)
        self.logprobs.append(logprob)


class Whole:
    """Holds back what an engine's scheduler says of a sample until that is finished.

    vLLM makes objects for each token of each sample, a request's output and its logprob's place
    among others, and has a reader go through them all. Who wants samples when they are finished
    needs none of that; beside a small model it costs more than the model. Stop strings are looked
    for as that reader takes a token, and need each as it comes.

    Args:
        llm: vLLM's.

    Attributes:
        on: whether samples are held back; else vLLM goes its own way.
    """

    def __init__(self, llm: Any) -> None:
        self.on = True
        self.states = llm.llm_engine.output_processor.request_states
        self.growing: dict[str, Growing] = defaultdict(Growing)
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler
        self.update_from_output = scheduler.update_from_output
        scheduler.update_from_output = self.after_step

    def after_step(self, scheduled: Any, made: Any) -> Any:
        """Return what the scheduler says of the samples that a step of the model finished."""
        logprobs = made.logprobs
        if not self.on or logprobs is None or logprobs.cu_num_generated_tokens is not None:
            return self.update_from_output(scheduled, made)
        made.logprobs = None
        clients = self.update_from_output(scheduled, made)
        tokens, values = (x[:, 0].tolist() for x in logprobs[:2])
        for client in clients.values():
            for output in client.outputs:
                if output.new_token_ids:
                    row = made.req_id_to_index[output.request_id]
                    self.growing[output.request_id].add(output, tokens[row], values[row])
            ended = [one for one in client.outputs if one.finish_reason is not None]
            client.outputs = [self._whole(output) for output in ended]
        return clients

    def _whole(self, output: Any) -> Any:
        """Return a sample's last output with all tokens; its logprobs go to where vLLM has them."""
        sample = self.growing.pop(output.request_id)
        output.new_token_ids = sample.tokens
        found = self.states[output.request_id].logprobs_processor.logprobs
        found.token_ids.extend(sample.seen)
        found.logprobs.extend(sample.logprobs)
        return output
