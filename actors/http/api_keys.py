"""The API keys a server accepts: those it was given, and those of a file that may change while it runs.
How a client sends one: `sent_key`.

Only digests are kept. A file is looked at every second: keys that were added are accepted and those that
are gone are not, without a restart; what is wrong with a changed file is logged, and the keys of before hold.
An empty file never opens a server.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Final

import trio
from starlette.requests import HTTPConnection

from ...protocols.errors import UnauthorizedError
from ..callers import Caller, caller_by_key
from ..config.server import ListenConfig
from ..errors import ConfigError
from ..runtime.threads import in_thread
from ..transport.connection_limits import KEY_SHOWN

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0
_MAX_FILE_BYTES: Final = 1024 * 1024
KEY_SUBPROTOCOL: Final = "openai-insecure-api-key."
"""As OpenAI's clients in browsers name it."""
_HEADERS: Final = ("x-api-key", "api-key")
"""As Anthropic's clients name it, and Azure's."""


class ApiKeys:
    """Accepted keys. Raises ConfigError if the file cannot be read or has none."""

    def __init__(self, config: ListenConfig) -> None:
        self._disk = trio.CapacityLimiter(1)
        self._file = config.api_key_file
        self._given = frozenset(map(caller_by_key, config.api_key))
        self._takes_signed = bool(config.caller_secret)
        self._state: object = None
        self._callers = self._given
        if self._file is not None:
            self._state = _state(self._file)
            self._callers = self._given | _read(self._file)

    @property
    def are_needed(self) -> bool:
        """Whether nobody may come in without one."""
        return bool(self._given) or self._file is not None

    @property
    def num_callers(self) -> int:
        """Different keys."""
        return len(self._callers)

    def check(self, key: str | None) -> Caller:
        """The holder of a key. Raises UnauthorizedError.

        Digests are compared and not keys: how long that takes tells nothing of a key.
        """
        caller = None if not key else caller_by_key(key)
        if caller is None or caller not in self._callers:
            raise UnauthorizedError(
                "The API key is not accepted."
                if key
                else "No API key was given; send it as `Authorization: Bearer KEY`."
            )
        return caller

    def knows(self, caller: Caller) -> bool:
        """Whether that caller's key is still accepted; who came without one, where none is needed, is. The
        keys of a gateway's callers are the gateway's to know."""
        return not caller.has_key or caller in self._callers or self._takes_signed

    async def watch(self) -> None:
        """Follow the file's changes, for as long as the server runs."""
        while self._file is not None:
            await trio.sleep(CHECK_INTERVAL_S)
            await self._reload(self._file)

    async def _reload(self, file: Path) -> None:
        state = await in_thread(_state, file, limiter=self._disk, max_wait_s=math.inf)
        if state == self._state:
            return
        self._state = state
        try:
            self._callers = self._given | await in_thread(
                _read, file, limiter=self._disk, max_wait_s=math.inf
            )
        except ConfigError as error:
            logger.error("%s; the keys of before hold", error)
        else:
            logger.info("%s was read again: %d API keys are accepted", file, self.num_callers)


def note_key(connection: HTTPConnection) -> None:
    """Tell what holds the connection that an accepted key was shown."""
    note = connection.scope.get(KEY_SHOWN)
    if note is not None:
        note()


def sent_key(connection: HTTPConnection) -> str | None:
    """The key that came with a request or a handshake; browsers can send one as a subprotocol only."""
    key = _bearer(connection.headers.get("authorization"))
    found = (connection.headers.get(name) for name in _HEADERS)
    key = key or next((value for value in found if value), None)
    if key is not None:
        return key
    for offered in connection.scope.get("subprotocols", []):
        if offered.startswith(KEY_SUBPROTOCOL):
            return str(offered.removeprefix(KEY_SUBPROTOCOL))
    return None


def _bearer(authorization: str | None) -> str | None:
    """The key of an `Authorization: Bearer …` header."""
    if authorization is None:
        return None
    scheme, _, key = authorization.partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def _state(file: Path) -> object:
    """Something else after every change."""
    try:
        found = file.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(file: Path) -> frozenset[Caller]:
    """One key a line; empty lines and what begins with # are none."""
    option = f"--api-key-file is {str(file)!r}"
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_FILE_BYTES + 1).decode("utf-8-sig")  # some editors begin with a mark
    except OSError as error:
        raise ConfigError(f"{option}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option}: not UTF-8") from None
    if len(text) > _MAX_FILE_BYTES:
        raise ConfigError(f"{option}: larger than {_MAX_FILE_BYTES:,} bytes")
    lines = map(str.strip, text.splitlines())
    keys = frozenset(caller_by_key(line) for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ConfigError(f"{option}: it has no key; allowed: one key a line")
    return keys
