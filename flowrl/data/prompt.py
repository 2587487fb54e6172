"""A row's prompt: plain text, or the turns of a chat."""

from collections.abc import Mapping
from typing import Any

from flowrl.data.record import Record, RowError
from flowrl.data.spec import DataSpec
from flowrl.data.template import template_columns
from flowrl.errors import DataError

Message = Mapping[str, Any]
Prompt = str | list[Message]


def raw_prompt(record: Record, spec: DataSpec) -> Prompt:
    """Return the prompt as the row has it: the template filled in, text, or chat messages."""
    if spec.template is not None:
        return _filled(spec.template, record)
    key = spec.prompt_key
    if key not in record.columns and "messages" in record.columns:
        key = "messages"
    if isinstance(record.columns.get(key), list):
        return messages(record, key)
    return record.text(key)


def whole_prompt(raw: Prompt, spec: DataSpec) -> Prompt:
    """Return a row's prompt with the run file's worked examples and system message."""
    if not isinstance(raw, str) or spec.chat:
        return chat_prompt(raw, spec)
    if spec.system is not None:
        hint = "set `chat = true`, or put it into `template`"
        raise DataError("`system` is set, but these prompts are plain text", hint=hint)
    shots = [example["prompt"] + example["completion"] for example in spec.examples]
    return "\n\n".join([*shots, raw])


def chat_prompt(raw: Prompt, spec: DataSpec) -> list[Message]:
    """Return the same as a chat; text is the user's turn."""
    turns = as_turns(raw)
    head = turns[:1] if turns[0]["role"] == "system" else []
    own = turns[len(head) :]
    if spec.system is not None and not head:
        head = [{"role": "system", "content": spec.system}]
    shots: list[Message] = [
        {"role": role, "content": example[part]}
        for example in spec.examples
        for role, part in (("user", "prompt"), ("assistant", "completion"))
    ]
    return [*head, *shots, *own]


def as_turns(raw: Prompt) -> list[Message]:
    """Return a prompt as chat turns."""
    return [{"role": "user", "content": raw}] if isinstance(raw, str) else raw


def messages(record: Record, key: str) -> list[Message]:
    """Return the chat messages in a column, less the keys that Arrow filled with nulls.

    Raises:
        RowError: it is empty, or holds something else than messages with text.
    """
    turns = record.value(key)
    if not turns:
        raise RowError(f"empty {key}", f"column `{key}` has no message", where=record.where)
    for number, turn in enumerate(turns, start=1):
        fits = isinstance(turn, Mapping)
        if not (
            fits and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
        ):
            problem = f"message {number} of `{key}` must be {{role = text, content = text}}"
            raise RowError("wrong type", f"{problem}; got {turn!r:.80}", where=record.where)
    if not turns[-1]["content"].strip():
        raise RowError(f"empty {key}", f"the last message of `{key}` is blank", where=record.where)
    return [{name: part for name, part in turn.items() if part is not None} for turn in turns]


def _filled(template: str, record: Record) -> str:
    values = {column: record.value(column) for column in template_columns(template)}
    try:
        return template.format_map(values)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"`template` cannot be filled in: {error}"
        raise RowError("wrong type", problem, where=record.where) from error
