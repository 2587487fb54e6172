"""What the run file says of a reward that a server gives."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs
from attrs.validators import ge, gt

from flowrl.rewards.resolve import TEXTS, Columns

ServerKind = Literal["json", "chat", "classify", "pooling", "score"]

READ_BY: Mapping[str, tuple[ServerKind, ...]] = {
    "model": ("chat", "classify", "pooling", "score"),
    "template": ("json", "chat", "classify", "pooling"),
    "send": ("json",),
    "scores": ("json",),
    "pattern": ("chat",),
}
"""The kinds that read a key; all of them read the others."""

PLACEHOLDER = re.compile(r"\{(\w+)\}")

LONGEST_PAUSE = 30.0
"""Seconds between two attempts at most, whatever `Retry-After` says."""


@attrs.frozen
class ServerSpec:
    """A reward that a server gives over HTTP, and how it is called.

    `kind` says what is posted and where the scores are in the answer:

    - `json`: the lists that `send` names, one entry a completion; the scores are a list.
    - `chat`: an LLM judge behind `/v1/chat/completions`, asked by `template`, a completion a
      request; the answer is a number, or has one where `pattern` says.
    - `classify`, `pooling`, `score`: a reward model behind vLLM's `/classify`, `/pooling` or
      `/score`, with one label. The first two get the text of `template`; `score` gets prompt and
      completion apart.

    `{prompt}`, `{completion}` and `{column}` in a template stand for the texts and the row's
    columns; other braces stand for themselves. The prompt is what the policy reads, with its chat
    template; a column may have the question alone.

    Transient failures are retried, after growing pauses: a connection that fails or breaks, no
    answer in time, the statuses 408, 429, 502, 503 and 504, for which `Retry-After` is obeyed, and
    a good status with what is no JSON, such as a proxy's page. A request of several completions
    that is answered 400, 413, 422 or 500 is repeated one completion at a time. Other statuses,
    redirects too, answers without scores, and what is no JSON to the last attempt end the run.
    """

    http: str = attrs.field()
    """URL to post to: `http://host:8000/v1/chat/completions`."""
    kind: ServerKind = "json"
    """The server's protocol."""
    model: str | None = None
    """Name of the model at the server; its only one if not given."""
    template: str | None = attrs.field(default=None)
    """What a judge is asked, or a model reads; the prompt and the completion if not given."""
    send: Mapping[str, str] = attrs.field(factory=dict)
    """The fields of a `json` request: each is `prompts`, `completions`, `texts` (by `template`) or
    a column of the data: `{ query = "texts", labels = "answer" }`. If not given, `prompts` and
    `completions` by these names."""
    scores: str = "rewards"
    """Where the scores are in a `json` answer that isn't a list itself; `data.scores` is nested."""
    pattern: str | None = attrs.field(default=None)
    """Regular expression whose last match, or group 1 of it, is the score in a judge's answer:
    `'score: (\\d+)'`. If not given, the whole answer is the number."""
    extra_body: Mapping[str, Any] = attrs.field(factory=dict)
    """Further fields of a request: `{ temperature = 0, max_tokens = 8 }`."""
    api_key_env: str | None = None
    """Environment variable with the key that is sent as bearer token; no key if not given."""
    batch: int | None = attrs.field(default=None)
    """Most completions in one request; 64 if not given, and 1 for `chat`."""
    concurrency: int = attrs.field(default=8, validator=ge(1))
    """Requests that are open at once."""
    time_limit: float = attrs.field(default=60.0, validator=gt(0))
    """Seconds until a request has its answer."""
    retries: int = attrs.field(default=3, validator=ge(0))
    """How often a request is retried."""

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(type(self)):
            readers, value = READ_BY.get(field.name, (self.kind,)), getattr(self, field.name)
            if self.kind not in readers and value != _default(field):
                kinds = " or ".join(f'"{kind}"' for kind in readers)
                raise ValueError(
                    f'`{field.name}` is read if `kind` is {kinds}; it is "{self.kind}"'
                )
        if self.kind == "chat" and self.template is None:
            raise ValueError("`template` is needed: it says what the judge is asked")
        if self.kind == "json" and self.template and "texts" not in self.send.values():
            raise ValueError('`template` is read if a field of `send` is "texts"')

    @http.validator
    def _is_address(self, _: object, http: str) -> None:
        try:
            url = urlsplit(http)
            sound = url.scheme in ("http", "https") and url.hostname and (url.port or True)
        except ValueError:  # of a port or an IPv6 address
            sound = False
        if not sound:
            raise ValueError(f"`http` must be an address such as `http://host:8000/path`: `{http}`")
        if url.username is not None:
            raise ValueError("`http` must have no password in it; `api_key_env` names a key")

    @template.validator
    def _has_completion(self, _: object, template: str | None) -> None:
        if template is not None and "completion" not in PLACEHOLDER.findall(template):
            raise ValueError("`template` must have `{completion}` in it")

    @send.validator
    def _sends_completions(self, _: object, send: Mapping[str, str]) -> None:
        if send and not {"completions", "texts"}.intersection(send.values()):
            raise ValueError('`send` must have a field that is "completions" or "texts"')

    @pattern.validator
    def _is_pattern(self, _: object, pattern: str | None) -> None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"`pattern` is not a regular expression: {error}") from None

    @extra_body.validator
    def _is_json(self, _: object, extra_body: Mapping[str, Any]) -> None:
        try:
            json.dumps(dict(extra_body), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`extra_body` can't be written as JSON: {error}") from None

    @batch.validator
    def _is_count(self, _: object, batch: int | None) -> None:
        if batch is not None and batch < 1:
            raise ValueError(f"`batch` must be >= 1: {batch}")
        if batch is not None and batch > 1 and self.kind == "chat":
            raise ValueError('`batch` must be 1 for kind "chat": a judge is asked one at a time')

    @property
    def name(self) -> str:
        """The address without its query, for messages."""
        return self.http.partition("?")[0]

    @property
    def completions(self) -> int:
        """Most completions in one request."""
        return self.batch or (1 if self.kind == "chat" else 64)

    @property
    def longest(self) -> float:
        """Seconds after which a request and its retries are over, or its answer trickles in."""
        return self.time_limit * (self.retries + 2) + LONGEST_PAUSE * self.retries

    @property
    def fields(self) -> Mapping[str, str]:
        """What each field of a `json` request has."""
        return self.send or {text: text for text in TEXTS}

    @property
    def text(self) -> str:
        """The template of the texts that are sent."""
        return self.template or "{prompt}{completion}"

    @property
    def takes(self) -> Columns:
        """The texts and columns that a request needs."""
        names = {"prompts", "completions"} if self.kind == "score" else set[str]()
        if self.kind == "json":
            names = set(self.fields.values()) - {"texts"}
        if self.kind in ("chat", "classify", "pooling") or "texts" in self.send.values():
            names |= {plural(name) for name in PLACEHOLDER.findall(self.text)}
        return Columns(
            frozenset(names - set(TEXTS)), texts=tuple(text for text in TEXTS if text in names)
        )


def plural(placeholder: str) -> str:
    """Return the name of the list that a placeholder takes its entries from."""
    return f"{placeholder}s" if f"{placeholder}s" in TEXTS else placeholder


def _default(field: "attrs.Attribute[Any]") -> Any:
    default: Any = field.default
    return default.factory() if hasattr(default, "factory") else default
