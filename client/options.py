"""Where the server is and how to reach it. The only place in the client that reads the environment.

Read next: `client/client.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

DEFAULT_BASE_URL: Final = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_S: Final = 120.0
"""Long enough for a CPU server to transcribe a long file; a live session waits so long for its last turn."""
DEFAULT_TOTAL_TIMEOUT_S: Final = 4 * 3600.0
"""Of one request and all of its answer, streamed or not."""
DEFAULT_MAX_RETRIES: Final = 2
_FOR_EVER_S: Final = 1e6
"""Sockets take no infinity, nor more than some weeks."""

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Largest event accepted from a server; real ones are below 100 kB."""
MAX_QUEUED_EVENTS: Final = 1024
"""Events held for a caller that is not reading; beyond it the socket is paused and the server notices."""
MAX_CONNECTIONS: Final = 1000
"""HTTP connections at a time; more requests wait their turn."""
PING_INTERVAL_S: Final = 20.0
PING_TIMEOUT_S: Final = 120.0
"""Lenient: pongs wait behind unread events when the caller is slow, and a busy server is not a dead one."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ClientOptions(msgspec.Struct, frozen=True):
    """Validated connection settings, shared by the sync and the async client.

    `base_url` may or may not end in `/v1`; `timeout_s` bounds every single wait for the server
    and, once it has begun, an answer that is read as a whole; `total_timeout_s` bounds a request together
    with all of its answer, streamed ones too; `more_headers` go with every request and handshake.
    """

    base_url: str = DEFAULT_BASE_URL
    api_key: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_retries: int = DEFAULT_MAX_RETRIES
    more_headers: dict[str, str] = {}
    total_timeout_s: float = DEFAULT_TOTAL_TIMEOUT_S

    @property
    def root_url(self) -> str:
        """The server's address without `/v1` and without a trailing slash."""
        return self.base_url.rstrip("/").removesuffix("/v1")

    @property
    def headers(self) -> dict[str, str]:
        """Headers every request and every handshake carries."""
        is_given = "authorization" in map(str.lower, self.more_headers)
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key and not is_given else {}
        return key | self.more_headers

    @property
    def is_loopback(self) -> bool:
        """True for a server on this machine, which no configured proxy should stand in front of."""
        return urlsplit(self.base_url).hostname in _LOOPBACK

    def realtime_url(self, *, model: str | None = None, intent: str | None = "transcription") -> str:
        """The WebSocket address of a live session."""
        query = {key: value for key, value in (("intent", intent), ("model", model)) if value}
        scheme, rest = self.root_url.split("://", 1)
        url = f"{'wss' if scheme == 'https' else 'ws'}://{rest}/v1/realtime"
        return f"{url}?{urlencode(query)}" if query else url


def client_options(
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float | None = None,
    *,
    max_retries: int = DEFAULT_MAX_RETRIES,
    headers: Mapping[str, str] | None = None,
    total_timeout: float | None = None,
) -> ClientOptions:
    """Settings from arguments, then SENSORIUM_BASE_URL and SENSORIUM_CLIENT_API_KEY, then the defaults.

    Raises ValueError naming the setting, its value and what is allowed.
    """
    url = base_url or os.environ.get("SENSORIUM_BASE_URL") or DEFAULT_BASE_URL
    key = api_key or os.environ.get("SENSORIUM_CLIENT_API_KEY") or None
    if not _is_address(url):
        raise ValueError(f"base_url is {url!r}: expected http://HOST:PORT or https://HOST")
    if key and not (key.isascii() and key.isprintable()):
        raise ValueError("api_key has a character that no header carries, as a line break: expected ASCII")
    timeout_s = DEFAULT_TIMEOUT_S if timeout is None else timeout
    if not timeout_s > 0:
        raise ValueError(f"timeout is {timeout_s!r}: expected seconds above 0")
    total_s = DEFAULT_TOTAL_TIMEOUT_S if total_timeout is None else total_timeout
    if not total_s > 0:
        raise ValueError(f"total_timeout is {total_s!r}: expected seconds above 0")
    if max_retries < 0:
        raise ValueError(f"max_retries is {max_retries!r}: expected 0 or more")
    return ClientOptions(
        url,
        key,
        min(timeout_s, _FOR_EVER_S),
        max_retries,
        dict(headers or {}),
        min(total_s, _FOR_EVER_S),
    )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or above 65535
        return False
