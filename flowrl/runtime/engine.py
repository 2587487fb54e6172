"""What an engine is: one small protocol a kind."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import attrs
from torch import Tensor

from flowrl.errors import EngineError, nearest
from flowrl.functional.ragged import Ragged
from flowrl.runtime.known_engines import ENGINES


@attrs.frozen
class Sampling:
    """How to sample.

    Attributes:
        temperature: what logits are divided by; 0 is greedy.
        top_p: share of the probability that is sampled from; 1 is off.
        top_k: number of most likely tokens that are sampled from; 0 is off.
        max_tokens: in a completion, at most.
        min_tokens: before a completion may end.
        stop: strings that end a completion; the tokens that spell them stay in it.
        stop_tokens: ids that end a completion, besides the tokenizer's end of sequence.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()


@attrs.frozen
class Request:
    """Completions of one prompt.

    Attributes:
        prompt: token ids.
        seed: of sample 0; sample i has `seed + i`.
        n: how many completions.
    """

    prompt: Sequence[int]
    seed: int
    n: int = 1


@attrs.frozen
class Completion:
    """One sample.

    Attributes:
        tokens: ids, with the end-of-sequence token if there is one.
        logprobs: in nats, under the distribution that was sampled from, one a token.
        truncated: whether the token limit was reached before a stop.
    """

    tokens: list[int]
    logprobs: list[float]
    truncated: bool


class Sleeper(Protocol):
    """An engine that can leave its device for a while, as others of its pool work there."""

    def sleep(self, *, keep: bool = True) -> None:
        """Let the device's memory go.

        Args:
            keep: weights, in host memory; else they come anew before they are used.
        """
        ...

    def wake(self) -> None:
        """Take the memory back, with what was kept."""
        ...


class Generator(Protocol):
    """Samples from a language model. One that may leave its device is a `Sleeper` too."""

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take new weights, whole ones; everything cached from the old ones is gone."""
        ...

    def stored(self) -> Mapping[str, Tensor]:
        """Return what this rank has of each weight, by name, to be written in place."""
        ...

    def renewed(self, version: int) -> None:
        """Take note that all that is stored has been written; what was cached before is gone."""
        ...

    def lent(self) -> Mapping[str, Tensor]:
        """Return the tensors that this engine computes with, by name, for a trainer to share.

        Raises:
            EngineError: why they can't be: packed, quantised, divided.
        """
        ...

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Completion]]:
        """Return n completions for each request. The requests are one block: computed together."""
        ...


@attrs.frozen(eq=False)
class Sequences:
    """What a model reads: row i is context[i] followed by tokens[i].

    Attributes:
        context: i64[row, context], at least one token each.
        tokens: i64[row, token].
    """

    context: Ragged
    tokens: Ragged

    def __len__(self) -> int:
        return len(self.tokens.lengths[-1])


Outputs = dict[str, Tensor]
"""Per-token results, packed as `Sequences.tokens` is: `logprobs`, `entropy`, `values`,
`token_rewards`; per-row ones: `rewards`, `end_values`. All float32 (float64 if the model is)."""


class Loss(Protocol):
    """A loss as the trainer sees it. Rows are indices into the batch.

    Attributes:
        one_pass: whether the loss is a sum over rows once its divisors are known.
    """

    one_pass: bool

    def part(self, new: Outputs, rows: Tensor) -> Tensor:
        """Return these rows' share of the loss, differentiable in `new`; shares add up to it."""
        ...

    def cotangents(self, new: Outputs) -> tuple[Tensor, Outputs]:
        """Return the loss of the whole batch and its gradient in every entry of `new`."""
        ...


@attrs.frozen
class Update:
    """What one optimizer step did.

    Attributes:
        stats: `loss`, `grad_norm` (before clipping), `learning_rate`, `microbatches`.
        new: the outputs that the loss read, for the whole batch, without gradient.
    """

    stats: dict[str, float]
    new: Outputs


class Runs(Protocol):
    """Runs a model forward."""

    def forward(self, batch: Sequences, outputs: Sequence[str], temperature: float) -> Outputs:
        """Return the named outputs, without gradient."""
        ...


class Scorer(Runs, Protocol):
    """Has a model, and runs it forward. One that may leave its device is a `Sleeper` too."""

    def weights(self) -> Mapping[str, Tensor]:
        """Return the current weights by name; they alias the engine's own where possible."""
        ...

    def stored(self) -> Mapping[str, Tensor]:
        """Return what this rank has of each weight, by name; they alias the engine's own."""
        ...

    def gathered(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights one by one; of several ranks, all must ask for them."""
        ...

    def computed(self) -> Mapping[str, Tensor]:
        """Return the tensors that it runs with, by name: narrower than its weights, perhaps."""
        ...

    def average(self, weights: Mapping[str, Tensor], decay: float) -> None:
        """Move towards other weights, in place: to decay * own + (1 - decay) * other."""
        ...

    def snapshot(self) -> "Scorer":
        """Return a frozen copy."""
        ...

    def base(self) -> "Runs":
        """Return the model without its adapter; it is no copy."""
        ...


class Trainer(Scorer, Protocol):
    """Trains a model. Its weights change in place, at `update` only."""

    def update(
        self,
        batch: Sequences,
        outputs: Sequence[str],
        temperature: float,
        loss: Loss,
        step: int,
    ) -> Update:
        """Take one optimizer step; `step` (0-based, of the run) sets the learning rate."""
        ...

    def state_dict(self) -> dict[str, object]:
        """Return weights and optimizer state, as clones."""
        ...

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Return to a state."""
        ...

    def save_sharded(self, folder: str) -> None:
        """Write weights and optimizer state, each rank its own; any number of ranks loads them."""
        ...

    def load_sharded(self, folder: str) -> None:
        """Return to a state that was written in shards."""
        ...

    def save(self, folder: str) -> None:
        """Write a folder that transformers' `from_pretrained` loads, an adapter merged."""
        ...


def load(use: str, name: str) -> Any:
    """Import an engine class only when a run needs it, so that nobody needs all of them.

    Raises:
        EngineError: no engine has that name.
    """
    known = ENGINES[use]
    if name not in known:
        raise EngineError(
            f"no engine called `{name}` can {use}{nearest(name, known)}; there are: "
            f"{', '.join(sorted(known))}",
            hint="name another in `[engines.<role>]`",
        )
    module, attribute = known[name].split(":")
    return getattr(import_module(module), attribute)
