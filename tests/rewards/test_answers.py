import io

import pytest
import urllib3

from flowrl.rewards import body
from flowrl.rewards.answers import NotJSON, Reader
from flowrl.rewards.call import Fault
from flowrl.rewards.server import ServerSpec

READER = Reader(ServerSpec("http://host/score"), "secret")


def answer(data, status=200, reason="OK", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib3.HTTPResponse(
        io.BytesIO(data), named, status, reason=reason, preload_content=False
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_scores_are_read_whatever_the_type_that_they_are_said_to_have(encoding):
    came = answer('{"rewards": [1, 2], "note": "grün"}'.encode(encoding), Content_Type="text/html")

    assert READER.reply(came, 2, 0) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("status", "kind", "attempts"),
    [(503, "unanswered", " in 3 attempts"), (500, "refused", ""), (404, "denied", "")],
)
def test_a_status_counts_whatever_the_state_of_its_body(status, kind, attempts):
    unpackable = answer(b"not  now", status, "Sorry", Content_Encoding="gzip")
    broken = answer(b"not", status, "Sorry", Content_Length="99")

    assert READER.reply(unpackable, 1, 2) == Fault(
        kind, f"answered {status} Sorry{attempts}: not now"
    )
    assert READER.reply(broken, 1, 2) == Fault(kind, f"answered {status} Sorry{attempts}")


@pytest.mark.parametrize(
    ("location", "to"),
    [("/score/", "http://host/score/"), ("https://other/x?token=secret", "https://other/x")],
)
def test_a_redirect_is_not_followed_and_says_where_it_leads(location, to):
    came = answer(b"", 307, "Temporary Redirect", Location=location)

    assert READER.reply(came, 1, 0) == Fault(
        "denied", f"answered 307 Temporary Redirect, to `{to}`"
    )


def test_a_good_status_without_json_may_be_another_one_later():
    with pytest.raises(NotJSON) as caught:
        READER.reply(answer(b"<title>secret</title>"), 1, 0)

    assert caught.value.status == "200 OK"
    assert caught.value.what == "is no JSON: <title>***</title>"


def test_an_answer_that_is_too_long_is_told_by_its_beginning(monkeypatch):
    monkeypatch.setattr(body, "LONGEST", 2**20)

    fault = READER.reply(answer(b"[" * 2**21), 1, 0)

    assert fault == Fault("unreadable", f"answered more than 1 MiB: {'[' * 500}...")
