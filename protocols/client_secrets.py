"""`POST /v1/realtime/client_secrets`: a short-lived key for one browser or device, and the session it opens.

What the key is and how long it lives is the business of `actors/http/client_secrets.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .body import decode_body
from .realtime_session import SessionPatch, SessionView

DEFAULT_SECONDS: Final = 600


class ExpiresAfter(Struct, frozen=True, forbid_unknown_fields=True):
    """How long the secret can open sessions; they may go on after it."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[int, Meta(ge=10, le=7200)] = DEFAULT_SECONDS


class ClientSecretRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body; everything may be left out. `session` is shaped as in `session.update`; `single_use` is an
    extension: the key opens one session, and may resume it."""

    expires_after: ExpiresAfter | UnsetType | None = UNSET
    session: SessionPatch | UnsetType | None = UNSET
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
    def patch(self) -> SessionPatch:
        """What the session begins with."""
        return self.session or SessionPatch()


class ClientSecret(Struct, frozen=True):
    """The answer: the key, when it expires (Unix seconds), and the session as it would begin."""

    value: str
    expires_at: int
    session: SessionView


_decoder: Final = msgspec.json.Decoder(ClientSecretRequest)


def parse_client_secret(body: bytes) -> ClientSecretRequest:
    """Read a body; an empty one asks for the defaults. Raises BadRequestError or TooLargeError."""
    return decode_body(body.strip() or b"{}", _decoder)
