"""Ephemeral keys: who holds one may open live sessions, with the settings it was made for, until it expires.

Made by `POST /v1/realtime/client_secrets` with a real key, so that browsers and devices need none. A secret
belongs to the caller that made it: what it opens counts for that one. A single-use secret opens one session,
and may resume it. When there are too many, the caller with most of them loses those that expire first, so
that nobody else is locked out. Only the hash of a secret is kept. They open `/v1/realtime`
(`actors/http/realtime/websocket.py`) and nothing else.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import trio
from msgspec import UNSET

from ....protocols.errors import OverloadedError
from ....protocols.realtime.conversation_session import DialoguePatch
from ....protocols.realtime.session import SessionPatch
from ...callers import ANONYMOUS, Caller, give_back, greediest

MAX_SECRETS: Final = 10_000
"""Kept at a time."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""All their sessions' settings together: most are below 200 bytes, the largest 60 KB."""
_PREFIX: Final = "ek_"
_decoder: Final = msgspec.json.Decoder(SessionPatch)
_dialogue_decoder: Final = msgspec.json.Decoder(DialoguePatch)


@dataclass(slots=True)
class Secret:
    """What is known of a valid secret."""

    owner: Caller
    expires_at: float
    is_single_use: bool
    body: bytes
    """The settings as JSON: smaller than the objects, and what it holds is known."""
    answers: bool = False
    """They are of a session of type `realtime`."""
    opened: str | None = None
    """The id of the session it was last used for."""

    @property
    def patch(self) -> SessionPatch | DialoguePatch:
        """What a session opened with it begins with."""
        return _dialogue_decoder.decode(self.body) if self.answers else _decoder.decode(self.body)

    @property
    def is_used_up(self) -> bool:
        """Whether it opens no more sessions."""
        return self.is_single_use and self.opened is not None


class ClientSecrets:
    """The valid secrets by the hash of their value."""

    def __init__(self, max_secrets: int = MAX_SECRETS, max_bytes: int = MAX_BYTES, *, tag: str = "") -> None:
        """`tag` is this server's among several (`protocols/server/front_tags.py`)."""
        self._tag = tag
        self._max = max_secrets
        self._max_bytes = max_bytes
        self._secrets: dict[bytes, Secret] = {}
        self._num: Counter[Caller] = Counter()
        self._num_bytes: Counter[Caller] = Counter()

    def __len__(self) -> int:
        return len(self._secrets)

    def issue(
        self,
        patch: SessionPatch | DialoguePatch,
        seconds: float,
        *,
        owner: Caller = ANONYMOUS,
        is_single_use: bool = False,
    ) -> tuple[str, int]:
        """Make a secret: its value, and when it expires in Unix seconds.

        Raises OverloadedError if too many are valid, and nobody has more of them than `owner`.
        """
        # What a client sent back of what it was shown is ignored anyway, and not decoded.
        shown = dict.fromkeys(("id", "object", "expires_at", "limits", "capabilities", "resume_token"), UNSET)
        body = msgspec.json.encode(msgspec.structs.replace(patch, **shown))
        self._make_room(owner, len(body))
        value = _PREFIX + self._tag + secrets.token_urlsafe(32)
        expires_at = trio.current_time() + seconds
        answers = isinstance(patch, DialoguePatch)
        self._secrets[_hash(value)] = Secret(owner, expires_at, is_single_use, body, answers)
        self._num[owner] += 1
        self._num_bytes[owner] += len(body)
        return value, int(time.time() + seconds)

    def find(self, value: str | None) -> Secret | None:
        """What is known of a secret; None if it is not valid."""
        if value is None or not is_secret(value):
            return None
        found = self._secrets.get(_hash(value))
        return None if found is None or found.expires_at <= trio.current_time() else found

    def _make_room(self, owner: Caller, num_bytes: int) -> None:
        if self._lacking(owner, num_bytes) is None:
            return
        now = trio.current_time()
        for key in [key for key, kept in self._secrets.items() if kept.expires_at <= now]:
            self._drop(key)
        soonest: dict[Caller, Iterator[bytes]] = {}  # made once: there may be ten thousand
        while (held := self._lacking(owner, num_bytes)) is not None:
            loser = greediest(held, owner)
            if loser == owner:
                raise OverloadedError(
                    "Too many client secrets are valid; try again later.", retry_after_s=10.0
                )
            if loser not in soonest:
                of_loser = [key for key, kept in self._secrets.items() if kept.owner == loser]
                soonest[loser] = iter(sorted(of_loser, key=lambda key: self._secrets[key].expires_at))
            self._drop(next(soonest[loser]))

    def _lacking(self, owner: Caller, num_bytes: int) -> dict[Caller, int] | None:
        """Who would hold how much of what there is too little of; None if there is enough."""
        for held, new, most in ((self._num, 1, self._max), (self._num_bytes, num_bytes, self._max_bytes)):
            if held.total() + new > most:
                return held | Counter({owner: held[owner] + new})
        return None

    def _drop(self, key: bytes) -> None:
        gone = self._secrets.pop(key)
        give_back(self._num, gone.owner)
        give_back(self._num_bytes, gone.owner, len(gone.body))


def is_secret(value: str) -> bool:
    """Whether it looks like one of these."""
    return value.startswith(_PREFIX)


def _hash(value: str) -> bytes:
    return hashlib.sha256(value.encode(errors="replace")).digest()
