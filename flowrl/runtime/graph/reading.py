"""Models that read what another tokenizer wrote: by way of text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from jinja2 import TemplateError

from flowrl.errors import EngineError
from flowrl.functional.ragged import Ragged
from flowrl.ir.graph import Graph
from flowrl.ops.uses import tokenizing_role, uses_of
from flowrl.runtime.engine import Sequences
from flowrl.runtime.host import Detokenizer
from flowrl.runtime.rows.places import parents
from flowrl.runtime.rows.rows import Row

AROUND = ("version", "truncation", "padding", "post_processor")
"""The parts of tokenizer.json that say what is put around a text, not what its tokens are."""


def same_tokens(one: Any, other: Any) -> bool:
    """Return whether two tokenizers give each text the same ids, and each id the same text.

    Compared are vocabulary, merges, special and other added tokens, and how text is cut and joined
    again: all of tokenizer.json but `AROUND`. Tokenizers without one are the same only if they are
    one object.
    """
    return one is other or (_rules(one) == _rules(other) != {})


def _rules(tokenizer: Any) -> dict[str, Any]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    written = json.loads(backend.to_str()) if backend is not None else {}
    return {part: rule for part, rule in written.items() if part not in AROUND}


@attrs.frozen(eq=False)
class TextReader:
    """Gives a model prompts and completions as text, in its own tokens and chat template.

    A prompt is the row's messages, or the user's turn if it is plain text, and the completion the
    assistant's turn. Without a chat template the model reads the plain text of both, with what its
    tokenizer puts around a text.

    Attributes:
        role: of the model, for messages.
        writer: the tokenizer of the completions.
        own: the model's tokenizer.
        padding: the token that the model's classifier passes over at the end of a text, if any.
    """

    role: str
    writer: Detokenizer
    own: Any
    padding: int | None

    def __call__(self, rows: Sequence[Row], tokens: Ragged) -> Sequences:
        """Return the text of each sample as the model reads it.

        Args:
            rows: the row of each prompt.
            tokens: i64[prompt, sample, token], completions in the tokens of `writer`.

        Raises:
            EngineError: the chat template refuses a row, or a text has no token.
        """
        ids = []
        for row, sample in zip(parents(tokens.lengths).tolist(), tokens.rows(), strict=True):
            completion = self.writer.decode(sample.tolist(), skip_special_tokens=True)
            ids.append(self._ids(rows[row], completion))
        first, rest = [row[:1] for row in ids], [row[1:] for row in ids]
        return Sequences(Ragged.of_rows(first, torch.int64), Ragged.of_rows(rest, torch.int64))

    def _ids(self, row: Row, completion: str) -> list[int]:
        text, templated = self._text(row, completion), bool(self.own.chat_template)
        encoded = self.own(text, add_special_tokens=not templated, verbose=False)
        ids: list[int] = encoded["input_ids"]
        while len(ids) > 1 and ids[-1] == self.padding:
            ids = ids[:-1]
        if not ids:
            raise EngineError(
                f"the tokenizer of `{self.role}` gives no token for {text!r:.80}",
                where=f"  {row.where}",
                hint="take a reward model whose tokenizer knows this text",
            )
        return ids

    def _text(self, row: Row, completion: str) -> str:
        if not self.own.chat_template:
            if row.messages:
                raise EngineError(
                    f"the prompt is chat messages, and the tokenizer of `{self.role}` has no chat "
                    "template",
                    where=f"  {row.where}",
                    hint="save a chat template with the reward model, or give it plain prompts",
                )
            return row.prompt + completion
        asked = row.messages or [{"role": "user", "content": row.prompt}]
        turns = [*asked, {"role": "assistant", "content": completion}]
        tools = row.columns.get("tools")
        try:
            return str(self.own.apply_chat_template(turns, tools=tools, tokenize=False))
        except (TemplateError, TypeError, ValueError) as error:
            raise EngineError(
                f"the chat template of `{self.role}` refuses the messages: {error}",
                where=f"  {row.where}",
                hint="fix the row, or the chat_template of the reward model",
            ) from error


def reader_of(role: str, path: str, own: Any, writer: Any) -> TextReader | None:
    """Return what reads text for a model, or nothing if tokens go straight to it.

    Args:
        role: of the model.
        path: its folder or hub name.
        own: its tokenizer.
        writer: the tokenizer of the completions.
    """
    if own is None or writer is None or same_tokens(own, writer):
        return None
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path).get_text_config()
    return TextReader(role, writer, own, config.pad_token_id)


def check_tokenizers(graph: Graph, tokenizers: Mapping[str, Any]) -> None:
    """Refuse a model that can't read the tokens it is given.

    Args:
        graph: what runs.
        tokenizers: by role.

    Raises:
        EngineError: a model has another tokenizer and is asked for more than a reward a sample.
    """
    role = tokenizing_role(graph)
    for other, uses in uses_of(graph).items():
        node = uses.reads_tokens
        if node is None or same_tokens(tokenizers[role], tokenizers[other]):
            continue
        raise EngineError(
            f"{node.op.name}: `{other}` has another tokenizer than `{role}`, whose tokens it reads",
            where=node.loc.excerpt(),
            hint="take a model with the same tokenizer; a frozen model that gives one reward a "
            "sample, `ops.score(model, rollouts)`, may have any",
        )
