"""What an answer of a server means: scores, a status that is none, or nothing that can be used."""

import json
from urllib.parse import urljoin

import attrs
import urllib3
from urllib3.exceptions import DecodeError, HTTPError

from flowrl.rewards import body
from flowrl.rewards.call import Fault, Reply, checked, counted, shortened
from flowrl.rewards.formats import FORMATS, Unreadable
from flowrl.rewards.server import ServerSpec

PASSING = (408, 429, 502, 503, 504)
"""Statuses that may be others a moment later."""

OF_A_SAMPLE = (400, 413, 422, 500)
"""Statuses that one of the completions may be to blame for."""


class NotJSON(HTTPError):
    """A good status with a body that is no JSON: another attempt may get an answer.

    Args:
        status: the status.
        what: that body; it goes on from "with what".
    """

    def __init__(self, status: str, what: str) -> None:
        super().__init__(status, what)
        self.status, self.what = status, what


@attrs.frozen
class Reader:
    """Reads the answers of one server.

    Attributes:
        spec: the server.
        key: the one it is sent, out of all that is told of its answers.
    """

    spec: ServerSpec
    key: str = attrs.field(repr=False)

    def reply(self, response: urllib3.BaseHTTPResponse, count: int, retries: int) -> Reply:
        """Return the scores of `count` completions, or why there are none.

        Args:
            response: what came.
            count: of the completions.
            retries: how often it was asked for again.

        Raises:
            HTTPError: it broke off, or is no JSON though its status is good.
        """
        if not 200 <= response.status < 300:
            return self.fault(response, retries)
        came, encoding = body.read(response), body.encoding(response)
        try:
            whole = body.unpacked(came, encoding)
            answer = json.loads(whole) if len(whole) <= body.LONGEST else None
        except DecodeError:
            what = f"can't be unpacked as {encoding}: {self._said(came)}"
            raise NotJSON(_status(response), what) from None
        except (ValueError, RecursionError):
            what = f"is no JSON: {self._said(whole) or 'nothing'}"
            raise NotJSON(_status(response), what) from None
        if len(whole) > body.LONGEST:
            text = f"answered more than {body.LONGEST >> 20} MiB: {self._said(whole)}"
            return Fault("unreadable", text)
        try:
            return checked(FORMATS[self.spec.kind].scores(self.spec, answer), count)
        except Unreadable as unreadable:
            return unreadable.fault

    def fault(self, response: urllib3.BaseHTTPResponse, retries: int) -> Fault:
        """Return what a status means that isn't good, whatever the state of its body."""
        passes, elsewhere = response.status in PASSING, response.get_redirect_location()
        again = f" in {counted(retries + 1, 'attempt')}" if passes else ""
        to = f", to `{self._address(elsewhere)}`" if elsewhere else ""
        said = self._told(response)
        text = f"answered {_status(response)}{again}{to}{f': {said}' if said else ''}"
        if passes:
            return Fault("unanswered", text)
        return Fault("refused" if response.status in OF_A_SAMPLE else "denied", text)

    def hidden(self, text: str) -> str:
        """Return a text without the key."""
        return text.replace(self.key, "***") if self.key else text

    def _told(self, response: urllib3.BaseHTTPResponse) -> str:
        """Return how a body begins, unpacked if it can be; of one that breaks off, nothing."""
        try:
            came = body.beginning(response)
        except HTTPError:
            return ""
        try:
            return self._said(body.unpacked(came, body.encoding(response)))
        except DecodeError:
            return self._said(came)

    def _said(self, data: bytes) -> str:
        return shortened(self.hidden(" ".join(data.decode(errors="replace").split())))

    def _address(self, location: str) -> str:
        """Return a location without its query, as the name of a server is."""
        return self.hidden(urljoin(self.spec.http, location).partition("?")[0])


def _status(response: urllib3.BaseHTTPResponse) -> str:
    return " ".join(filter(None, [str(response.status), response.reason]))
