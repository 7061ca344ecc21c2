"""Events about the life of a session itself: how it is resumed, and the warning before it ends.

All are extensions of OpenAI's dialect, named in `session.capabilities`. `protocols/realtime/events.py` has
every other event and takes these into its unions; what happens is said in `actors/live/registry.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .conversation_session import DialogueView
from .session import SessionView

MAX_EVENT_ID: Final = 512
ClientEventId = Annotated[str, Meta(max_length=MAX_EVENT_ID)]
"""A client's own id of its event, echoed in errors: hence the bound, in characters."""

ExpiryReason = Literal["session_expired", "session_idle", "server_draining"]
"""The `code` of the error that will follow."""


class SentEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """What every client event may carry."""

    event_id: ClientEventId | UnsetType | None = UNSET


class NumberedEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every server event carries. The session fills both in; 0 is outside of the numbered stream."""

    event_id: str = ""
    server_event_seq: int = 0


class SessionResume(SentEvent, frozen=True, tag="session.resume"):
    """First event of a connection: go on with a session whose socket was lost.

    `token` is `session.resume_token` of that session's `session.created`; `after_seq` is the last
    `server_event_seq` that arrived.
    """

    session_id: Annotated[str, Meta(max_length=128)]
    token: Annotated[str, Meta(max_length=128)]
    after_seq: Annotated[int, Meta(ge=0, lt=2**53)]


class SessionResumed(NumberedEvent, frozen=True, kw_only=True, tag="session.resumed"):
    """Answer to `session.resume`; the events `after_seq + 1` to `last_seq` follow as they were first sent.

    `received_events` counts the client's events (binary frames included, `session.resume` not) that the
    session has taken in since it was created: what the client sent after that many is to be sent again.
    `received_audio_bytes` is the same position in bytes of audio, in the encodings they were sent in.
    `server_event_seq` is 0: a resume is not part of what it resumes.
    """

    session: SessionView | DialogueView
    after_seq: int
    last_seq: int
    received_events: int
    received_audio_bytes: int


class SessionExpiring(NumberedEvent, frozen=True, kw_only=True, tag="session.expiring"):
    """The session will be closed in `seconds_left`: at its longest life, for want of events, or because the
    server stops (then as soon as the open turn is answered). Any event puts off `session_idle`.
    """

    reason: ExpiryReason
    seconds_left: float
