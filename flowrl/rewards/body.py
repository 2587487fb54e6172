"""The bodies of a server's answers, as they came and unpacked."""

import io
import time

import urllib3

LONGEST = 2**26
"""Bytes of a body that are read; no scores are as long."""

TOLD = 2**14
"""Bytes that are read of a body without scores, of which the beginning is told."""

PATIENCE = 3.0
"""Seconds that such a body may trickle in."""


def read(response: urllib3.BaseHTTPResponse) -> bytes:
    """Return a body as it came; of one that is too long, a bit more than `LONGEST`.

    Raises:
        HTTPError: it broke off, or didn't come in time.
    """
    body = bytearray()
    with response:
        for piece in response.stream(2**16, decode_content=False):
            body += piece
            if len(body) > LONGEST:
                break
    return bytes(body)


def beginning(response: urllib3.BaseHTTPResponse) -> bytes:
    """Return what is told of a body that has no scores, and may never end.

    Raises:
        HTTPError: it broke off, or stopped.
    """
    body, end = bytearray(), time.monotonic() + PATIENCE
    with response:
        for byte in response.stream(1, decode_content=False):
            body += byte
            if len(body) == TOLD or time.monotonic() > end:
                break
    return bytes(body)


def encoding(response: urllib3.BaseHTTPResponse) -> str:
    """Return how an answer says that its body is packed; "" if it isn't."""
    return response.headers.get("Content-Encoding", "")


def unpacked(body: bytes, packing: str) -> bytes:
    """Return a body without its packing, such as `gzip`; of one that is too long, what `read` does.

    Raises:
        DecodeError: it isn't packed so.
    """
    packed = io.BytesIO(body)
    headers = {"Content-Encoding": packing}
    return urllib3.HTTPResponse(packed, headers, preload_content=False).read(LONGEST + 1)
