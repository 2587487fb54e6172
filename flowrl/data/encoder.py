"""From text and chat turns to the token ids that are sent, with exactly one BOS."""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import attrs
from jinja2 import TemplateError

from flowrl.data.prompt import Message, Prompt
from flowrl.data.record import SKIP_HINT
from flowrl.errors import DataError

GENERATION_TAG = re.compile(r"\{%-?\s*generation\b")


class EncodingError(Exception):
    """Text or turns that the tokenizer or its chat template refuses, and what to do."""

    def __init__(self, problem: str, hint: str = SKIP_HINT) -> None:
        super().__init__(problem)
        self.hint = hint


@attrs.frozen
class Encoder:
    """A tokenizer, and the ids that it puts before a text by itself (BOS, or none)."""

    tokenizer: Any
    head: list[int]

    @classmethod
    def of(cls, tokenizer: Any) -> "Encoder":
        """Find out whether the tokenizer prepends BOS."""
        specials = tokenizer("")["input_ids"]
        bos = tokenizer.bos_token_id
        return cls(tokenizer, specials[: specials.index(bos) + 1] if bos in specials else [])

    @property
    def eos(self) -> int:
        """The id that ends a completion."""
        if self.tokenizer.eos_token_id is None:
            raise DataError(
                "completions must end with an EOS token, and the tokenizer has none",
                hint="set `eos_token` in the model's tokenizer_config.json",
            )
        return int(self.tokenizer.eos_token_id)

    def text(self, prompt: Prompt, tools: Any = None) -> str:
        """Return a prompt as text, up to where a completion starts."""
        return prompt if isinstance(prompt, str) else self._render(prompt, tools, generate=True)

    def prompt_ids(self, text: str) -> list[int]:
        """Return the ids of a prompt: i64[context], one BOS at the start if there is any."""
        return self._with_head(self._ids(text))

    def completion_ids(self, text: str) -> list[int]:
        """Return the ids of a completion and EOS: i64[token]."""
        return [*self._ids(text), self.eos]

    def conversation(
        self, turns: list[Message], first: int, tools: Any
    ) -> tuple[list[int], list[bool]]:
        """Return the ids of a chat, and True on those that the assistant writes.

        The mask is the template's own where it has `{% generation %}` tags. Otherwise a turn
        is what the template adds between its generation prompt and the turn's end; so prompt
        and completion are split as in sampling. What comes after EOS is not the assistant's.

        Args:
            turns: the messages.
            first: the assistant's messages before this one are not marked.
            tools: what the template is told of tools, if anything.
        """
        if GENERATION_TAG.search(self.tokenizer.chat_template or ""):
            ids, mask = self._tagged(turns, first, tools)
        else:
            ids, mask = self._by_prefix(turns, first, tools)
        headed = self._with_head(ids)
        added = len(headed) - len(ids)
        return headed, [False] * added + mask[max(0, -added) :]

    def _tagged(self, turns: list[Message], first: int, tools: Any) -> tuple[list[int], list[bool]]:
        found = self._template(
            turns, tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        marks = [bool(mark) for mark in found["assistant_masks"]]
        begins = [mark and not last for last, mark in pairwise([False, *marks])]
        number = accumulate(begins)
        earlier = sum(turn["role"] == "assistant" for turn in turns[:first])
        mask = [mark and turn > earlier for mark, turn in zip(marks, number, strict=True)]
        return list(found["input_ids"]), mask

    def _by_prefix(
        self, turns: list[Message], first: int, tools: Any
    ) -> tuple[list[int], list[bool]]:
        whole = self._render(turns, tools)
        ids: list[int] = []
        mask: list[bool] = []
        position = 0
        for number in range(first, len(turns)):
            if turns[number]["role"] != "assistant":
                continue
            before = self._render(turns[:number], tools, generate=True)
            after = self._render(turns[: number + 1], tools)
            if not (whole.startswith(after) and after.startswith(before)):
                raise EncodingError(
                    f"the chat template writes message {number + 1} differently when more follow",
                    hint="mark what is trained by {% generation %} tags in the template",
                )
            context = self._ids(whole[position : len(before)])
            answer = self._ids(whole[len(before) : len(after)])
            ids += context + answer
            mask += [False] * len(context) + self._until_eos(answer)
            position = len(after)
        return ids, mask

    def _until_eos(self, ids: list[int]) -> list[bool]:
        end = ids.index(self.eos) + 1 if self.eos in ids else len(ids)
        return [position < end for position in range(len(ids))]

    def _render(self, turns: Sequence[Message], tools: Any, *, generate: bool = False) -> str:
        return str(self._template(turns, tools, tokenize=False, add_generation_prompt=generate))

    def _template(self, turns: Sequence[Message], tools: Any, **how: Any) -> Any:
        if not self.tokenizer.chat_template:
            raise DataError(
                "these prompts are chat messages, and the tokenizer has no chat template",
                hint="use a model with a chat template, or plain text prompts and `template`",
            )
        try:
            return self.tokenizer.apply_chat_template(list(turns), tools=tools, **how)
        except (TemplateError, TypeError, ValueError) as error:
            given = "messages" if tools is None else "messages and tools"
            raise EncodingError(f"the chat template refuses the {given}: {error}") from error

    def _ids(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EncodingError(f"the text cannot be encoded: {error}") from error
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _with_head(self, ids: list[int]) -> list[int]:
        """Put one head before the ids: what a template wrote is not written again."""
        bos = self.tokenizer.bos_token_id
        head = self.head or ([bos] if ids[:1] == [bos] else [])
        if not head:
            return ids
        start = 0
        while ids[start : start + len(head)] == head:
            start += len(head)
        return head + ids[start:]
