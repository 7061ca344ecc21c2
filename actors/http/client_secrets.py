"""Ephemeral keys: who holds one may open live sessions, with the settings it was made for, until it expires.

Made by `POST /v1/realtime/client_secrets` with a real key, so that browsers and devices need none. Only the
hash of a secret is kept. They open `/v1/realtime` (`actors/http/websocket.py`) and nothing else.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import Final

import msgspec
import trio
from msgspec import UNSET

from ...protocols.errors import OverloadedError
from ...protocols.realtime_session import SessionPatch

MAX_SECRETS: Final = 10_000
"""Kept at a time; more are refused."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""All their sessions' settings together: most are below 200 bytes, the largest 60 KB."""
_PREFIX: Final = "ek_"
_decoder: Final = msgspec.json.Decoder(SessionPatch)


@dataclass(frozen=True, slots=True)
class _Secret:
    expires_at: float
    patch: bytes
    """JSON: smaller than the objects, and what it holds is known."""


class ClientSecrets:
    """The valid secrets by the hash of their value."""

    def __init__(self, max_secrets: int = MAX_SECRETS, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_secrets
        self._max_bytes = max_bytes
        self._secrets: dict[bytes, _Secret] = {}
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._secrets)

    def issue(self, patch: SessionPatch, seconds: float) -> tuple[str, int]:
        """Make a secret: its value, and when it expires in Unix seconds.

        Raises OverloadedError if too many are valid.
        """
        now = trio.current_time()
        # What a client sent back of what it was shown is ignored anyway, and not decoded.
        shown = dict.fromkeys(("id", "object", "expires_at", "limits", "capabilities", "resume_token"), UNSET)
        body = msgspec.json.encode(msgspec.structs.replace(patch, **shown))
        if not self._has_room(body):
            self._secrets = {key: kept for key, kept in self._secrets.items() if kept.expires_at > now}
            self._num_bytes = sum(len(kept.patch) for kept in self._secrets.values())
        if not self._has_room(body):
            raise OverloadedError("Too many client secrets are valid; try again later.", retry_after_s=10.0)
        value = _PREFIX + secrets.token_urlsafe(32)
        self._secrets[_hash(value)] = _Secret(now + seconds, body)
        self._num_bytes += len(body)
        return value, int(time.time() + seconds)

    def find(self, value: str | None) -> SessionPatch | None:
        """What a session opened with the secret begins with; None if it is not valid."""
        if value is None or not is_secret(value):
            return None
        found = self._secrets.get(_hash(value))
        if found is None or found.expires_at <= trio.current_time():
            return None
        return _decoder.decode(found.patch)

    def _has_room(self, body: bytes) -> bool:
        return len(self._secrets) < self._max and self._num_bytes + len(body) <= self._max_bytes


def is_secret(value: str) -> bool:
    """Whether it looks like one of these."""
    return value.startswith(_PREFIX)


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode(errors="replace")).digest()
