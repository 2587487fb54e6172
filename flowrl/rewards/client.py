"""Asking a server for scores."""

import json
import os
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import attrs
import urllib3
from urllib3.exceptions import (
    HTTPError,
    InvalidHeader,
    MaxRetryError,
    NewConnectionError,
)
from urllib3.exceptions import TimeoutError as Late
from urllib3.util import Retry, Timeout

from flowrl.errors import RewardError
from flowrl.rewards.answers import PASSING, NotJSON, Reader
from flowrl.rewards.call import Fault, Reply, counted, shortened
from flowrl.rewards.formats import FORMATS, Arguments
from flowrl.rewards.server import LONGEST_PAUSE, ServerSpec


@attrs.frozen
class Answer:
    """What a request came to, and how many times it was asked again."""

    reply: Reply
    retries: int


class _Retry(Retry):
    """Retries that wait as long as `Retry-After` says, up to a bound; if it says nothing, a bit."""

    def is_retry(self, *_: object) -> bool:
        """Leave all statuses to the client: it waits for the end of no body without scores."""
        return False

    def parse_retry_after(self, retry_after: str) -> float:
        try:
            return max(0.0, float(retry_after))  # some servers send "0.5"
        except ValueError:
            pass
        try:
            return super().parse_retry_after(retry_after)
        except (InvalidHeader, ValueError, OverflowError):  # no date, or one that can't be
            return 0.0

    def get_retry_after(self, response: urllib3.BaseHTTPResponse) -> float | None:
        seconds = super().get_retry_after(response)
        return None if seconds is None else min(seconds, LONGEST_PAUSE)


class Client:
    """One server that gives a reward. Several threads may ask it at once.

    Args:
        reward: the reward's name.
        spec: the server.

    Raises:
        RewardError: the environment has no key, or the server can't be reached.
    """

    def __init__(self, reward: str, spec: ServerSpec) -> None:
        self.spec = spec
        key = _key(reward, spec)
        self._reader = Reader(spec, key)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._connections = _connections(spec)
        self._retry = _Retry(
            spec.retries,
            allowed_methods=None,  # a POST that is asked again is scored again, no more
            backoff_factor=0.5,
            backoff_jitter=0.5,
            backoff_max=LONGEST_PAUSE,
        )
        self._reach(reward)

    def message(self, arguments: Arguments, where: str) -> bytes:
        """Return the body of a request.

        Args:
            arguments: its texts and columns.
            where: the row of the first completion.

        Raises:
            RewardError: a column is nothing that JSON has.
        """
        body = FORMATS[self.spec.kind].body(self.spec, arguments)
        body |= {"model": self.spec.model} if self.spec.model else {}
        try:
            return json.dumps(body | dict(self.spec.extra_body), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise RewardError(
                f"the columns of {where} cannot be sent to `{self.spec.name}`: {error}",
                hint="use strings, finite numbers, lists and dicts",
            ) from error

    def ask(self, message: bytes, count: int) -> Answer:
        """Post a request about `count` completions; whatever comes of it, return an answer."""
        try:
            return self._answer(message, count, self._retry)
        except MaxRetryError as error:
            return Answer(self._given_up(error), self.spec.retries)

    def _answer(self, message: bytes, count: int, retry: Retry) -> Answer:
        """Post until an answer arrives whole, and with a good status is JSON.

        Raises:
            MaxRetryError: none did; its reason says what the last attempt came to.
        """
        while True:
            try:
                response = self._request("POST", retry, body=message)
                retry = response.retries or retry  # those of connections that failed are counted
                if response.status in PASSING and retry.total:
                    retry = retry.increment("POST", self.spec.http, response=response)
                    response.close()
                    retry.sleep(response)
                    continue
                retries = len(retry.history)
                return Answer(self._reader.reply(response, count, retries), retries)
            except MaxRetryError:
                raise
            except HTTPError as error:
                retry = retry.increment("POST", self.spec.http, error=error)
            retry.sleep()

    def close(self) -> None:
        """Close the connections."""
        self._connections.clear()

    def _request(self, method: str, retry: Retry, **given: Any) -> urllib3.BaseHTTPResponse:
        return self._connections.request(
            method,
            self.spec.http,
            headers=self._headers,
            retries=retry,
            redirect=False,
            timeout=Timeout(total=self.spec.time_limit),
            preload_content=False,
            **given,
        )

    def _reach(self, reward: str) -> None:
        """Ask for nothing: any answer but a refusal of the key will do."""
        try:
            response = self._request("GET", Retry(0, raise_on_status=False))
        except HTTPError as error:
            self.close()
            raise RewardError(
                f"`{self.spec.name}`, the server of the reward `{reward}`, can't be reached: "
                f"{self._reason(error)}",
                hint=f"start it, or fix `http` in [reward.{reward}]",
            ) from None
        with response:
            fault = self._reader.fault(response, 0) if response.status in (401, 403) else None
        if fault:
            self.close()
            key = self.spec.api_key_env
            raise RewardError(
                f"`{self.spec.name}`, the server of the reward `{reward}`, {fault.text}",
                hint=f"look at the key in `{key}`" if key else "name a key: `api_key_env`",
            )

    def _given_up(self, error: MaxRetryError) -> Fault:
        asked = f"in {counted(self.spec.retries + 1, 'attempt')}"
        if isinstance(error.reason, NotJSON):
            text = f"answered {error.reason.status} {asked} with what {error.reason.what}"
            return Fault("no_json", text)
        return Fault("unanswered", f"gave no answer {asked}: {self._reason(error)}")

    def _reason(self, error: HTTPError) -> str:
        """Return why there was no answer."""
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, Late) and not isinstance(reason, NewConnectionError):
            return f"nothing within {self.spec.time_limit:g} s"
        return shortened(self._reader.hidden(str(reason.__cause__ or reason)))


def _key(reward: str, spec: ServerSpec) -> str:
    if spec.api_key_env is None:
        return ""
    key = os.environ.get(spec.api_key_env, "").strip()
    if not key:
        raise RewardError(
            f"the environment has no `{spec.api_key_env}`, which `api_key_env` of "
            f"[reward.{reward}] names",
            hint='set it where the run starts; with `executor = "ray"`, where Ray starts',
        )
    if not (key.isascii() and key.isprintable()):
        raise RewardError(
            f"the key in `{spec.api_key_env}`, which `api_key_env` of [reward.{reward}] names, has "
            "characters that a header can't have",
            hint="look for line breaks, and for letters that aren't ASCII",
        )
    return key


def _connections(spec: ServerSpec) -> urllib3.PoolManager:
    """Return the connections to a server, through the proxy that the environment names."""
    url = urlsplit(spec.http)
    proxy = None if proxy_bypass(url.netloc) else getproxies().get(url.scheme)
    if proxy:
        return urllib3.ProxyManager(proxy, maxsize=spec.concurrency)
    return urllib3.PoolManager(maxsize=spec.concurrency)
