import datetime

import pytest
from inline_snapshot import snapshot

from flowrl.rewards.resolve import Columns
from flowrl.rewards.server import ServerSpec

URL = "http://host:8000/score"


def message(http=URL, **keys):
    with pytest.raises(ValueError, match="`") as caught:
        ServerSpec(http, **keys)
    return str(caught.value)


def test_a_table_that_cannot_be_meant_is_refused():
    judge = {"kind": "chat", "template": "{completion}"}

    messages = [
        message("host:8000"),
        message("ftp://host/score"),
        message("http://host:port/score"),
        message("http://me:secret@host/score"),
        message(kind="chat"),
        message(**judge | {"template": "Is {prompt} good?"}),
        message(**judge | {"pattern": "("}),
        message(**judge, batch=2),
        message(batch=0),
        message(pattern=r"\d"),
        message(kind="score", template="{completion}"),
        message(kind="pooling", send={"query": "texts"}),
        message(send={"query": "prompts"}),
        message(template="{completion}"),
        message(extra_body={"until": datetime.date(2026, 1, 1)}),
    ]

    assert "\n".join(messages) == snapshot("""\
`http` must be an address such as `http://host:8000/path`: `host:8000`
`http` must be an address such as `http://host:8000/path`: `ftp://host/score`
`http` must be an address such as `http://host:8000/path`: `http://host:port/score`
`http` must have no password in it; `api_key_env` names a key
`template` is needed: it says what the judge is asked
`template` must have `{completion}` in it
`pattern` is not a regular expression: missing ), unterminated subpattern at position 0
`batch` must be 1 for kind "chat": a judge is asked one at a time
`batch` must be >= 1: 0
`pattern` is read if `kind` is "chat"; it is "json"
`template` is read if `kind` is "json" or "chat" or "classify" or "pooling"; it is "score"
`send` is read if `kind` is "json"; it is "pooling"
`send` must have a field that is "completions" or "texts"
`template` is read if a field of `send` is "texts"
`extra_body` can't be written as JSON: Object of type date is not JSON serializable\
""")


def test_a_server_takes_the_columns_that_it_is_sent():
    judge = ServerSpec(URL, kind="chat", template="{prompt} {completion} {answer} {level}")
    wrapped = ServerSpec(URL, send={"query": "texts", "n": "id"}, template="<{completion}>")

    assert judge.takes == Columns(frozenset({"answer", "level"}))
    assert wrapped.takes == Columns(frozenset({"id"}), texts=("completions",))
    assert ServerSpec(URL).takes == Columns(frozenset())
    assert ServerSpec(URL, kind="score").takes == Columns(frozenset())
    assert ServerSpec(URL, kind="pooling").takes == Columns(frozenset())


def test_a_judge_is_asked_one_at_a_time_and_others_in_batches():
    judge = ServerSpec(URL, kind="chat", template="{completion}")

    assert (judge.completions, ServerSpec(URL).completions) == (1, 64)


def test_a_name_has_no_query_as_that_may_be_secret():
    assert ServerSpec("https://host/score?key=abc").name == "https://host/score"
