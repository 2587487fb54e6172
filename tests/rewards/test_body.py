import gzip
import io

import pytest
import urllib3
from urllib3.exceptions import DecodeError, ProtocolError

from flowrl.rewards import body


def answer(data, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib3.HTTPResponse(io.BytesIO(data), named, 200, preload_content=False)


def test_a_body_is_read_as_it_came_and_unpacked_by_its_encoding():
    packed = gzip.compress(b"[1.0]")
    came = answer(packed, Content_Encoding="gzip")

    assert body.read(came) == packed
    assert body.unpacked(packed, body.encoding(came)) == b"[1.0]"


@pytest.mark.parametrize("data", [b"", b"[1.0]"])
def test_a_body_that_is_not_packed_is_what_came(data):
    assert body.unpacked(data, body.encoding(answer(data))) == data


def test_a_body_that_is_not_packed_as_it_says_is_an_error():
    with pytest.raises(DecodeError):
        body.unpacked(b"[1.0]", "gzip")


def test_a_body_that_breaks_off_is_an_error():
    with pytest.raises(ProtocolError):
        body.read(answer(b"[1.0", Content_Length="5"))


def test_no_more_is_read_or_unpacked_than_anybody_answers(monkeypatch):
    monkeypatch.setattr(body, "LONGEST", 1000)
    zeros = bytes(10**6)

    assert 1000 < len(body.read(answer(zeros))) < 10**6
    assert len(body.unpacked(gzip.compress(zeros), "gzip")) == 1001


def test_of_a_body_that_is_told_the_beginning_is_read(monkeypatch):
    monkeypatch.setattr(body, "TOLD", 1000)

    assert body.beginning(answer(b"not now")) == b"not now"
    assert body.beginning(answer(bytes(10**6))) == bytes(1000)

    monkeypatch.setattr(body, "PATIENCE", -1.0)
    assert body.beginning(answer(b"not now")) == b"n"
