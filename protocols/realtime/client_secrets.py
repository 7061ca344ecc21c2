"""`POST /v1/realtime/client_secrets`: a short-lived key for one browser or device, and the session it opens,
of either type.

What the key is and how long it lives is the business of `actors/http/realtime/client_secrets.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from ..shared.json_body import decode_body, decoder
from .conversation_session import DialoguePatch, DialogueView
from .session import SessionPatch, SessionView

DEFAULT_SECONDS: Final = 600


class ExpiresAfter(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the secret can open sessions; they may go on after it."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Meta(ge=10, le=7200)] = DEFAULT_SECONDS


class ClientSecretRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body; everything may be left out. `session` is shaped as in `session.update`; `single_use` is an
    extension: the key opens one session, and may resume it."""

    expires_after: ExpiresAfter | UnsetType | None = UNSET
    session: Raw | UnsetType = UNSET
    single_use: bool | None = None

    @property
    def is_single_use(self) -> bool:
        """Whether the key opens no second session."""
        return bool(self.single_use)

    @property
    def seconds(self) -> int:
        """The wanted lifetime."""
        return (self.expires_after or ExpiresAfter()).seconds

    @property
    def patch(self) -> SessionPatch | DialoguePatch:
        """What the session begins with, of either type. Raises BadRequestError."""
        if self.session is UNSET or bytes(memoryview(self.session)[:4]) == b"null":
            return SessionPatch()
        if _decode_head(self.session, "session").type == "realtime":
            return _decode_dialogue(self.session, "session")
        return _decode_patch(self.session, "session")


class ClientSecret(Struct, frozen=True):
    """The answer: the key, when it expires (Unix seconds), and the session as it would begin."""

    value: str
    expires_at: int
    session: SessionView | DialogueView


class _Head(Struct, frozen=True):
    type: str | None = None


_decode_head = decoder(_Head)
_decode_patch = decoder(SessionPatch)
_decode_dialogue = decoder(DialoguePatch)
_decoder: Final = msgspec.json.Decoder(ClientSecretRequest)


def parse_client_secret(body: bytes) -> ClientSecretRequest:
    """Read a body; an empty one asks for the defaults. Raises BadRequestError or TooLargeError."""
    return decode_body(body.strip() or b"{}", _decoder)
