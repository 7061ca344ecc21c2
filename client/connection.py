"""What both shells share about sockets: how to open them, and which of our errors their exceptions are.

Read next: `client/realtime/transcription.py` (sync) and `client/realtime/async_transcription.py`.
"""

from __future__ import annotations

import errno
import math
import os
import random
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, Protocol, TypeVar

import httpx
import msgspec
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    WebSocketException,
)

from ..protocols.realtime.invalid_frames import MALFORMED
from .errors import APIError, SDKError, SensoriumConnectionError, SensoriumTimeoutError
from .options import (
    MAX_CONNECTIONS,
    MAX_MESSAGE_BYTES,
    MAX_QUEUED_EVENTS,
    PING_INTERVAL_S,
    PING_TIMEOUT_S,
    ClientOptions,
)

OPEN_TIMEOUT_S = 30.0
"""Longest opening handshake of a first connection."""
CLOSE_TIMEOUT_S = 2.0
"""A server that does not answer our closing handshake is not worth waiting for."""
LOST_S = 30.0
"""How long the server's machine may leave what we sent unacknowledged: then the way to it is lost. Pings
cannot say so as soon (see `PING_TIMEOUT_S`), and the server keeps a lost session for half a minute."""


_HEADING: Final = re.compile(r"<(?:title|h1)[^>]*>\s*([^<]{1,100})", re.IGNORECASE)
_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_WAIT_S: Final = 0.5
_MAX_WAIT_S: Final = 8.0
_REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"
"""What asyncio says where a name has several addresses."""
_MAX_REQUESTED_S: Final = 60.0
"""The longest `Retry-After` that is waited for."""


_T = TypeVar("_T")


class SocketOptions(Protocol):
    """What asyncio, trio and the standard library call a socket."""

    def setsockopt(self, level: int, name: int, value: int, /) -> None:
        """Set an option."""


def socket_arguments(options: ClientOptions, limit_s: float) -> dict[str, Any]:
    """Keyword arguments of websockets' `connect`, the same for all three shells.

    No compression: PCM does not deflate, and small deflated events only cost time.
    """
    return {
        "additional_headers": options.headers,
        "compression": None,
        "proxy": None if options.is_loopback else True,
        "open_timeout": min(options.timeout_s, limit_s),
        "close_timeout": CLOSE_TIMEOUT_S,
        "ping_interval": PING_INTERVAL_S,
        "ping_timeout": PING_TIMEOUT_S,
        "max_size": MAX_MESSAGE_BYTES,
        "max_queue": MAX_QUEUED_EVENTS,
    }


def http_arguments(options: ClientOptions) -> dict[str, Any]:
    """Keyword arguments of both of httpx's clients."""
    return {
        "base_url": options.root_url,
        "headers": options.headers,
        "timeout": options.timeout_s,
        "limits": httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20),
        "trust_env": not options.is_loopback,
    }


class PerProcess(Generic[_T]):
    """What `make` makes, made again in a forked child: connections shared with the parent mix up answers."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made, self._pid = make(), os.getpid()

    @property
    def value(self) -> _T:
        """That of this process."""
        if self._pid != os.getpid():
            self._made, self._pid = self._make(), os.getpid()
        return self._made


class Retries:
    """Of one request: how often it was sent, and whether it may be again."""

    def __init__(self, options: ClientOptions, *, is_repeatable: bool) -> None:
        self._options = options
        self._num_failed = 0
        self.may_repeat = is_repeatable

    def wait_s(self, error: SDKError) -> float:
        """How long to wait before it is sent again after `error`, which is raised if it may not be."""
        if not self.may_repeat or self._num_failed >= self._options.max_retries:
            raise error
        requested_s: float | None = None
        match error:
            case APIError() if error.status in _RETRIED:
                requested_s = error.retry_after_s
            case SensoriumConnectionError():
                pass
            case _:  # refused for our fault, or a timeout, which may still be worked on
                raise error
        backoff_s = min(_FIRST_WAIT_S * float(2**self._num_failed), _MAX_WAIT_S) * random.uniform(0.75, 1.0)
        self._num_failed += 1
        return max(backoff_s, min(requested_s or 0.0, _MAX_REQUESTED_S))


@contextmanager
def noting(headers: httpx.Headers) -> Iterator[None]:
    """Adds to an APIError what the answer's headers say."""
    try:
        yield
    except APIError as error:
        _note(error, headers)
        raise


@contextmanager
def readable_errors(options: ClientOptions) -> Iterator[None]:
    """Turns what httpx raises for a request without an answer into an SDKError."""
    try:
        yield
    except httpx.HTTPError as error:
        raise _request_error(error, options) from error


@contextmanager
def readable_connect_errors(options: ClientOptions) -> Iterator[None]:
    """Turns what websockets raises for a socket that cannot be opened into an SDKError."""
    try:
        yield
    except (OSError, WebSocketException) as error:
        raise _connect_error(error, options) from error


def notice_loss(connected: SocketOptions) -> None:
    """Break this TCP connection when the network is lost. On Linux; elsewhere pings notice it later."""
    if sys.platform == "linux":
        with suppress(OSError):  # it has ended already: reading it says why
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(LOST_S * 1000))


def _connect_error(error: Exception, options: ClientOptions) -> SDKError:
    """The readable error for a socket that could not be opened."""
    match error:
        case InvalidStatus():
            refusal = status_error(error.response.status_code, bytes(error.response.body or b""))
            _note(refusal, httpx.Headers(list(error.response.headers.raw_items())))
            return refusal
        case TimeoutError():
            return SensoriumTimeoutError(f"{options.root_url} did not answer while connecting")
        case OSError():
            return _unreachable(options, error)
        case InvalidMessage() | InvalidHandshake():
            return SensoriumConnectionError(f"{options.root_url} does not speak WebSocket there: {error}")
        case _:
            return SensoriumConnectionError(f"cannot connect to {options.root_url}: {error}")


def _request_error(error: httpx.HTTPError, options: ClientOptions) -> SDKError:
    """The readable error for an HTTP request that got no answer."""
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError():
            return _unreachable(options, error)
        case httpx.TimeoutException():
            return SensoriumTimeoutError(f"{options.root_url} did not answer within {options.timeout_s:g} s")
        case _:
            return SensoriumConnectionError(
                f"the connection to {options.root_url} broke: {error or type(error).__name__}"
            )


def _unreachable(options: ClientOptions, error: Exception) -> SensoriumConnectionError:
    """The usual case is that nobody listens, so it says what to do then."""
    if _is_refused(error):
        return SensoriumConnectionError(f"no server at {options.root_url}; start one with: sensorium serve")
    return SensoriumConnectionError(f"cannot reach {options.root_url}: {error}")


def status_error(status: int, body: bytes) -> APIError:
    """The error in an HTTP answer: OpenAI's error body where there is one, of a proxy's page its heading,
    else the beginning of the text."""
    try:
        payload = msgspec.json.decode(body)
    except MALFORMED:
        payload = None
    match payload:
        case {"error": {"message": str(message), **details}}:
            return APIError(status, _word(details.get("code")), _word(details.get("param")), message)
        case {"error": str(message)}:
            return APIError(status, None, None, message)
        case _:
            page = body[:2000].decode(errors="replace").strip()
            heading = _HEADING.search(page) if page.startswith("<") else None
            text = page[:200] if heading is None else f"a page answers, no server: {heading[1].strip()}"
            return APIError(status, None, None, text or f"the server answered with status {status}")


def close_details(error: ConnectionClosed) -> tuple[int, str, bool]:
    """Close code and reason, and whether it was us who closed; 1006 when the server just vanished."""
    by_us = error.sent is not None and not error.rcvd_then_sent
    first = error.sent if by_us else error.rcvd
    return (1006, "", False) if first is None else (first.code, first.reason, by_us)


def _note(error: APIError, headers: httpx.Headers) -> None:
    error.request_id = headers.get("x-request-id")
    try:
        wait_s = float(headers["retry-after"])
    except (KeyError, ValueError):  # none, or a date
        return
    error.retry_after_s = wait_s if 0 <= wait_s < math.inf else None


def _word(value: object) -> str | None:
    return None if value is None else str(value)  # some servers put numbers here


def _is_refused(error: BaseException | None) -> bool:
    if error is None:
        return False
    if isinstance(error, BaseExceptionGroup):  # of every address that a name has
        return any(map(_is_refused, error.exceptions))
    if isinstance(error, OSError) and (error.errno == errno.ECONNREFUSED or _REFUSED in str(error)):
        return True
    return _is_refused(error.__cause__ or error.__context__)
