"""The one place where a model runs forward over whole sequences, for scorers and trainers."""

import json
from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from flowrl.errors import EngineError
from flowrl.functional.packing import Packed, pack
from flowrl.functional.ragged import Ragged
from flowrl.runtime.engine import Outputs, Sequences
from flowrl.runtime.model.attention import Packing
from flowrl.runtime.model.heads import CLASSES, head_module
from flowrl.runtime.model.kernels import row_starts
from flowrl.runtime.model.language import LANGUAGE, full_precision, language_outputs
from flowrl.runtime.rows.places import ranges

PER_ROW = ("rewards", "end_values")


@attrs.frozen(eq=False)
class InputLines:
    """Sequences as a model reads them.

    Attributes:
        input_ids: i64[line, position]; one line a row, right-padded, or one line of all rows.
        packed: where rows lie on the one line; None where a line is a row.
        starts: i64[row], the place of each row's first response token in the flattened lines.
    """

    input_ids: Tensor
    packed: Packed | None
    starts: Tensor


def forward_outputs(
    model: nn.Module,
    batch: Sequences,
    outputs: Sequence[str],
    temperature: float = 1.0,
    packing: Packing = "padded",
    compiled: bool = False,
) -> Outputs:
    """Run a model over sequences; differentiable.

    Args:
        model: a transformers model: a language model, with or without a value head, or a
            classifier of one label.
        batch: contexts and responses; a response may be empty.
        outputs: which of these to return, in float32 (float64 if the model is):
            logprobs: f[row, token], natural log of the probability of token t given all before
                it, under softmax(logits / temperature).
            entropy: f[row, token], of that distribution, in nats.
            collision: f[row, token], the sum of squared probabilities of that distribution.
            values: f[row, token], the head's number at the position before token t.
            end_values: f[row], the same after the row's last token: at that token's position.
            token_rewards: f[row, token], the head's number at token t.
            rewards: f[row], the head's number at the row's last token.
        temperature: above 0.
        packing: "packed" puts all rows on one line, where attention is told where rows start, or
            transformers masks it by position ids that restart; "padded" makes one right-padded
            line a row, where causal attention alone hides the padding. Both give the same numbers.
        compiled: whether torch has compiled the model's layers, and shall what reads its logits.

    Returns:
        The outputs by name, packed over tokens as `batch.tokens` is.

    Raises:
        EngineError: an output that this model's head does not give, or temperature 0.
    """
    check_outputs(model, outputs, temperature)
    if not len(batch):
        return empty_outputs(model, outputs)
    lines = (lay_packed if packing == "packed" else lay_padded)(batch)
    device = next(model.parameters()).device
    inputs: dict[str, Any] = {"input_ids": lines.input_ids.to(device), "use_cache": False}
    if lines.packed is not None:
        inputs["position_ids"] = lines.packed.position_ids[None].to(device)
        inputs |= row_starts(model, lines.packed, device)
    lengths = batch.tokens.lengths[-1]
    at = ranges(lines.starts, lengths).to(device)  # the place of each response token
    last = (lines.starts + lengths - 1).to(device)
    if is_language(model):
        tokens = batch.tokens.values.to(device)
        its = tokens, outputs, temperature, compiled
        return language_outputs(model, inputs, at - 1, last, *its)
    numbers = numbers_of(model, inputs)
    places = {"values": at - 1, "end_values": last, "token_rewards": at, "rewards": last}
    return {name: numbers[places[name]] for name in outputs}


class Forward(nn.Module):
    """A model that is called over sequences, as `forward_outputs` does.

    Attributes:
        norms: is called before the model; None unless weights are divided so.
    """

    norms: nn.Module | None

    def __init__(self, model: nn.Module, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.compiled = model, compiled
        self.register_module("norms", None)

    def forward(
        self, batch: Sequences, outputs: Sequence[str], temperature: float, packing: Packing
    ) -> Outputs:
        """Return the named outputs, differentiable."""
        if self.norms:
            self.norms()
        made = forward_outputs(self.model, batch, outputs, temperature, packing, self.compiled)
        return {name: x.clone() for name, x in made.items()}  # FSDP2 wants no views


def is_language(model: nn.Module) -> bool:
    """Whether a model gives logits."""
    return model.get_output_embeddings() is not None  # type: ignore[operator]


def offered(model: nn.Module) -> set[str]:
    """Return the outputs that a model's heads give."""
    if not is_language(model):
        return {"values", "end_values", "token_rewards", "rewards"}
    return {*LANGUAGE, "values", "end_values"} if hasattr(model, "value_head") else set(LANGUAGE)


def check_outputs(model: nn.Module, outputs: Sequence[str], temperature: float) -> None:
    """Refuse outputs that the model's head cannot give."""
    for name in outputs:
        if name not in offered(model):
            needed = "a language model" if name in LANGUAGE else "a model with a scalar head"
            raise EngineError(
                f"`{name}` needs {needed}; got a {type(model).__name__}",
                hint=f"set the role's head in [models]: {', '.join(map(json.dumps, CLASSES))}",
            )
    if temperature <= 0 and not set(LANGUAGE).isdisjoint(outputs):
        raise EngineError(
            f"logprobs need a temperature above 0; got {temperature}",
            hint="greedy samples have no logprobs: sample what is trained on at a temperature "
            "above 0",
        )


def lay_padded(batch: Sequences) -> InputLines:
    """Put each row on a line of its own."""
    contexts, tokens = batch.context.lengths[-1], batch.tokens.lengths[-1]
    width = int((contexts + tokens).max())
    begins = torch.arange(len(batch)) * width
    flat = write(batch, begins, len(batch) * width)
    return InputLines(flat.view(len(batch), width), None, begins + contexts)


def lay_packed(batch: Sequences) -> InputLines:
    """Put all rows on one line, one after another."""
    contexts, tokens = batch.context.lengths[-1], batch.tokens.lengths[-1]
    lengths = contexts + tokens
    begins = lengths.cumsum(0) - lengths
    packed = pack(Ragged(write(batch, begins, int(lengths.sum())), (lengths,)))
    return InputLines(packed.input_ids[None], packed, begins + contexts)


def write(batch: Sequences, begins: Tensor, size: int) -> Tensor:
    """Return i64[size] with each row's context and tokens from `begins[row]` on, else 0."""
    contexts, tokens = batch.context.lengths[-1], batch.tokens.lengths[-1]
    flat = torch.zeros(size, dtype=torch.int64)
    flat[ranges(begins, contexts)] = batch.context.values.cpu()
    flat[ranges(begins + contexts, tokens)] = batch.tokens.values.cpu()
    return flat


def numbers_of(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    """Return the head's number at every place of the flattened lines."""
    hidden = model.base_model(**inputs).last_hidden_state.flatten(0, 1)  # type: ignore[operator]
    return full_precision(head_module(model)(hidden))[:, 0]


def empty_outputs(model: nn.Module, outputs: Sequence[str]) -> Outputs:
    """Return the outputs of no rows."""
    none = full_precision(next(model.parameters()).new_empty(0))
    return {name: none for name in outputs}
