"""A row made ready: what reward functions see, and the ids that engines are sent."""

from collections.abc import Callable, Mapping

import attrs
import torch
from torch import Tensor

from flowrl.data.encoder import Encoder, EncodingError
from flowrl.data.prompt import (
    Message,
    Prompt,
    as_turns,
    chat_prompt,
    messages,
    raw_prompt,
    whole_prompt,
)
from flowrl.data.record import Record, RowError
from flowrl.data.spec import DataSpec, RowKind
from flowrl.runtime.rows.rows import Row

LONG_PROMPT = "long prompt"
LONG_HINT = 'raise `max_prompt_tokens`, or set `on_long_prompt` to "skip" or "truncate_left"'


@attrs.frozen(eq=False)
class Completion:
    """What follows a prompt. tokens: i64[token]. mask: bool[token], True if trained."""

    tokens: Tensor
    mask: Tensor


@attrs.frozen(eq=False)
class Entry:
    """A row, its prompt's ids i64[context], and no, one or two completions by kind."""

    row: Row
    context: Tensor
    completions: tuple[Completion, ...] = ()


@attrs.frozen
class Preparer:
    """Makes entries of one kind from records."""

    spec: DataSpec
    encoder: Encoder
    kind: RowKind
    needs: Mapping[str, str]

    def entry(self, record: Record) -> Entry:
        """Check a record and encode it.

        Raises:
            RowError: this row cannot be used.
            DataError: no row can be used.
        """
        for column, reader in sorted(self.needs.items()):
            record.value(column, reader)
        try:
            return MAKE[self.kind](self, record)
        except EncodingError as error:
            raise RowError("bad text", str(error), where=record.where, hint=error.hint) from error

    def prompt(self, record: Record) -> Entry:
        """Make an entry of a prompt alone."""
        prompt = whole_prompt(raw_prompt(record, self.spec), self.spec)
        if not isinstance(prompt, str) and prompt[-1]["role"] == "assistant":
            raise RowError(
                "no open turn",
                "the last message is the assistant's, so there is nothing to answer",
                where=record.where,
            )
        made = self._entry(record, *self._opening(record, prompt))
        messages = () if isinstance(prompt, str) else tuple(prompt)
        return attrs.evolve(made, row=attrs.evolve(made.row, messages=messages))

    def example(self, record: Record) -> Entry:
        """Make an entry of a prompt and its completion, or of a whole conversation."""
        text, context, completion = self._completed(record, self.spec.completion_key)
        return self._entry(record, text, context, completion)

    def pair(self, record: Record) -> Entry:
        """Make an entry of a prompt with the chosen and the rejected completion."""
        text, context, chosen = self._completed(record, self.spec.chosen_key)
        _, other, rejected = self._completed(record, self.spec.rejected_key)
        if context != other:
            problem = "the chosen and the rejected conversation do not share their prompt"
            raise RowError("wrong pair", problem, where=record.where)
        return self._entry(record, text, context, chosen, rejected)

    def _completed(self, record: Record, key: str) -> tuple[str, list[int], Completion]:
        """Return the prompt's text and ids, and the completion in a column."""
        raw = raw_prompt(record, self.spec)
        if chat := _conversation(record, self.spec, raw, key):
            return self._split(record, *chat)
        text, context = self._opening(record, whole_prompt(raw, self.spec))
        tokens = self.encoder.completion_ids(record.text(key))
        return text, context, _completion(tokens, [True] * len(tokens))

    def _opening(self, record: Record, prompt: Prompt) -> tuple[str, list[int]]:
        text = self.encoder.text(prompt, record.columns.get("tools"))
        return text, self.encoder.prompt_ids(text)

    def _split(
        self, record: Record, turns: list[Message], first: int
    ) -> tuple[str, list[int], Completion]:
        """Split a conversation where the assistant writes what is trained."""
        ids, mask = self.encoder.conversation(turns, first, record.columns.get("tools"))
        if True not in mask[1:]:
            problem = "no message is the assistant's, so there is nothing to train on"
            raise RowError("no completion", problem, where=record.where)
        start = mask.index(True, 1)
        end = len(mask) - mask[::-1].index(True)
        text = str(self.encoder.tokenizer.decode(ids[:start]))
        return text, ids[:start], _completion(ids[start:end], mask[start:end])

    def _entry(
        self, record: Record, text: str, context: list[int], *completions: Completion
    ) -> Entry:
        limit = self.spec.max_prompt_tokens
        if not context:
            raise RowError("empty prompt", "the prompt has no tokens", where=record.where)
        if len(context) > limit:
            if self.spec.on_long_prompt != "truncate_left":
                problem = f"the prompt has {len(context)} tokens; the limit is {limit}"
                raise RowError(LONG_PROMPT, problem, where=record.where, hint=LONG_HINT)
            context = context[-limit:]
            text = str(self.encoder.tokenizer.decode(context))
        row = Row(record.id, record.where, text, record.columns)
        return Entry(row, torch.tensor(context), completions)


MAKE: dict[RowKind, Callable[[Preparer, Record], Entry]] = {
    "prompts": Preparer.prompt,
    "examples": Preparer.example,
    "pairs": Preparer.pair,
}


def _conversation(
    record: Record, spec: DataSpec, raw: Prompt, key: str
) -> tuple[list[Message], int] | None:
    """Return prompt and completion as one chat, and where what is trained begins.

    None if the completion is text. If there is none, a prompt of messages that ends with the
    assistant's is a whole conversation: each of the row's own answers is trained.
    """
    answer = record.columns.get(key)
    if isinstance(answer, list):
        own, opening = messages(record, key), as_turns(raw)
        repeated = len(opening) if own[: len(opening)] == opening else 0
        prompt = chat_prompt(raw, spec)
        return [*prompt, *own[repeated:]], len(prompt)
    if answer is None and not isinstance(raw, str) and raw[-1]["role"] == "assistant":
        turns = chat_prompt(raw, spec)
        return turns, len(turns) - len(raw) + (raw[0]["role"] == "system")
    return None


def _completion(tokens: list[int], mask: list[bool]) -> Completion:
    return Completion(torch.tensor(tokens), torch.tensor(mask))
