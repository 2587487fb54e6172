"""The hf engine: samples from a transformers model with a key-value cache."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from flowrl.errors import EngineError
from flowrl.runtime.engine import Completion, Request, Sampling
from flowrl.runtime.model.fsdp2 import chunk, laid_as
from flowrl.runtime.model.host_copy import HostCopy
from flowrl.runtime.model.language import full_precision
from flowrl.runtime.model.models import ModelSpec, check_device, load_model
from flowrl.runtime.model.tensor_parallel import divide
from flowrl.runtime.model.value_head import without_value_head
from flowrl.runtime.model.weights import check_weights, shapes_of
from flowrl.runtime.ranks.ranks import ALONE, Ranks
from flowrl.runtime.sampling.distribution import sample, uniforms
from flowrl.runtime.sampling.refusals import broken, check_prompts, check_sampling, limits_of
from flowrl.runtime.sampling.stopping import Stops

KEEP = 0.75
"""Rows that ended leave the cache once fewer than this share of its rows are live."""


class HFGenerator:
    """Samples from a language model.

    Args:
        spec: the model, of which the language head is read; in bfloat16 its weights are bfloat16.
        tokenizer: gives the end of sequence, and the text in which stop strings are looked for.
        ranks: those that divide the model. They are given the same requests, have the same logits,
            and so sample the same tokens.
    """

    cache_version = None
    """Its cache lasts for a call."""

    scales: Mapping[str, float] = MappingProxyType({})
    """It holds parameters as they are."""

    def __init__(self, spec: ModelSpec, tokenizer: Any, ranks: Ranks = ALONE) -> None:
        self.spec, self.tokenizer, self.ranks = spec, tokenizer, ranks
        self.version, self.shared = 0, False
        self.orders: dict[str, Tensor] = {}
        self.kept = HostCopy(spec.device)
        check_device(spec)
        if spec.lora and ranks.count > 1:
            raise EngineError(
                f"{ranks.count} ranks are to divide `{spec.path}`, which has an adapter: that "
                "needs whole layers",
                hint="take a layout without tp",
            )
        whole = attrs.evolve(spec, head="lm", device=spec.device if ranks == ALONE else "cpu")
        self.model: Any = load_model(whole).requires_grad_(False)
        self.shapes = shapes_of(self.model)
        if ranks.count > 1:
            self.orders = divide(self.model, ranks, spec.device)
            self.model.to(spec.device)

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take new weights, whole ones: shared where dtype and device agree, else copied.

        Ranks copy their parts. Those of a value head are left out.

        Raises:
            EngineError: a tensor is unknown, missing or of another shape.
        """
        weights = without_value_head(weights)
        check_weights(self.model, weights, self.shapes)
        for name, own in self.model.state_dict(keep_vars=True).items():
            if name in weights:
                self._take(own, weights[name].detach(), self.orders.get(name))
        self.version, self.kept.changed = version, True

    def _take(self, own: Tensor, new: Tensor, order: Tensor | None) -> None:
        if self.ranks.count > 1:
            chunk(own).copy_(chunk(laid_as(new if order is None else new[order], own)))
        elif (new.dtype, new.device) == (own.dtype, own.device):
            own.data, self.shared = new, True
        else:
            own.data = new.to(own.device, own.dtype)

    def stored(self) -> dict[str, Tensor]:
        """Return what this rank has of each weight, by name, aliased; tied ones once.

        They may be written: what `load` has shared is this engine's own from now on.
        """
        return {name: tensor for name, tensor in self._own() if name in self.shapes}

    def lent(self) -> dict[str, Tensor]:
        """Return this engine's own tensors by name, for a trainer to compute with.

        Raises:
            EngineError: they are divided over ranks.
        """
        if self.ranks.count > 1:
            raise EngineError(f"{self.ranks.count} ranks divide them")
        return self.stored()

    def held(self) -> dict[str, Tensor]:
        """Return this engine's own tensors by name; where ranks divide them, its parts."""
        return self.stored()

    def renewed(self, version: int) -> None:
        """Take note that all that is stored has been written: it is of this version now."""
        self.version, self.kept.changed = version, True

    def sleep(self, *, keep: bool = True) -> None:
        """Let the device's memory go: weights go to the host, or come anew before they are used.

        The base of an adapter doesn't come anew, so is kept.
        """
        lora = self.spec.lora is not None
        lasting = ((name, x) for name, x in self._own() if lora or name in self.shapes)
        self.kept.take(lasting, keep=keep or lora)

    def wake(self) -> None:
        """Take the memory back, with what the host has kept."""
        self.kept.give_back()

    def _own(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what this rank has of all tensors, by name; none of them is shared any more."""
        for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
            if self.shared and name in self.shapes:
                tensor.data = tensor.data.clone()
            yield name, chunk(tensor.detach())
        self.shared = False

    @torch.no_grad()
    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Return n completions for each request; all are computed together.

        A sample depends on its block and its seed: it has its own uniform numbers, one a token.

        Raises:
            EngineError: a prompt is empty, too long or not of this vocabulary, or `sampling`
                describes no distribution.
            RankMissingError: another rank died, or did not come in time.
        """
        self.kept.check(self.spec.path)
        vocabulary, positions = limits_of(self.model.config)
        check_sampling(sampling, vocabulary)
        check_prompts(requests, sampling, vocabulary, positions)
        if not any(request.n for request in requests):
            return [[] for _ in requests]
        with self.ranks.together(f"sampling {len(requests)} requests from {self.spec.path}"):
            samples = iter(self._sample(requests, sampling))
        return [list(islice(samples, request.n)) for request in requests]

    def _sample(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Return the samples of all requests, in order."""
        prompt_of = [i for i, request in enumerate(requests) for _ in range(request.n)]
        seeds = [request.seed + i for request in requests for i in range(request.n)]
        draws = np.stack([uniforms(seed, sampling.max_tokens) for seed in seeds])
        decoder = Decoder(self.model, [request.prompt for request in requests], sampling.max_tokens)
        decoder.select(torch.tensor(prompt_of))
        stops = Stops(sampling, self.tokenizer, self.model.device)
        made = decode(decoder, stops, sampling, torch.from_numpy(draws))
        if not made.logprobs.isfinite().all():
            raise broken(self.spec.path, self.version)
        return made.completions()


class Decoder:
    """Rows of a block on their way through the model, and their cache.

    Prompts are left-padded, so that every row's newest token stands at the same place, and each
    goes through the model once, however many samples it has.

    Attributes:
        logits: f[row, vocab], of each row's next token.
    """

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        self.model, self.device = model, model.device
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        width = int(lengths.max())
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        places = torch.arange(width + max_tokens) - (width - lengths)[:, None]
        self.seen, self.position = width, lengths.to(self.device)
        self.mask = None if (lengths == width).all() else (places >= 0).to(self.device)
        self.cache = DynamicCache(config=model.config)
        self.logits = self._forward(ids, places[:, :width].clamp(min=0))

    def step(self, tokens: Tensor) -> None:
        """Append a token, i64[row], to each row."""
        self.seen += 1
        self.logits = self._forward(tokens[:, None], self.position[:, None])
        self.position = self.position + 1

    def select(self, rows: Tensor) -> None:
        """Go on with these rows; one may come up several times."""
        rows = rows.to(self.device)
        self.cache.batch_select_indices(rows)
        self.logits, self.position = self.logits[rows], self.position[rows]
        self.mask = None if self.mask is None else self.mask[rows]

    def _forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        made = self.model(
            input_ids=ids.to(self.device),
            attention_mask=None if self.mask is None else self.mask[:, : self.seen],
            position_ids=positions.to(self.device),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return full_precision(made.logits[:, -1])


class Samples:
    """What a block has sampled: one row a sample, in order.

    Args:
        count: rows.
        limit: tokens in a row at most.
        like: a tensor of the logprobs' dtype and device.
    """

    def __init__(self, count: int, limit: int, like: Tensor) -> None:
        self.tokens = like.new_zeros(count, limit, dtype=torch.int64)
        self.logprobs = like.new_zeros(count, limit)
        self.lengths = like.new_full((count,), limit, dtype=torch.int64)
        self.stopped = like.new_zeros(count, dtype=torch.bool)

    def completions(self) -> list[Completion]:
        """Return the rows up to their ends."""
        columns = (self.tokens, self.logprobs, self.lengths, self.stopped)
        return [
            Completion(tokens[:length], logprobs[:length], truncated=not stopped)
            for tokens, logprobs, length, stopped in zip(*map(Tensor.tolist, columns), strict=True)
        ]


def decode(decoder: Decoder, stops: Stops, sampling: Sampling, draws: Tensor) -> Samples:
    """Sample every row of a decoder to its end.

    Args:
        decoder: one row a sample, its prompt read.
        stops: what ends a row.
        sampling: the distribution and the limit.
        draws: f64[row, token], uniform numbers.
    """
    draws = draws.to(decoder.device)
    made = Samples(len(draws), sampling.max_tokens, decoder.logits)
    rows = torch.arange(len(draws), device=decoder.device)  # the samples that are in the decoder
    for t in range(sampling.max_tokens):
        if t:
            decoder.step(made.tokens[rows, t - 1])
        logits = stops.forbid(decoder.logits, t)
        made.tokens[rows, t], made.logprobs[rows, t] = sample(logits, sampling, draws[rows, t])
        tail = made.tokens[rows, max(0, t - stops.window) : t + 1]
        ended = rows[stops.reached(tail, t + 1) & ~made.stopped[rows]]
        made.lengths[ended], made.stopped[ended] = t + 1, True
        live = (~made.stopped[rows]).nonzero()[:, 0]
        if not len(live):
            break
        if len(live) < KEEP * len(rows):
            decoder.select(live)
            rows = rows[live]
    return made
