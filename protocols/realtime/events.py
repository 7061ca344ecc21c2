"""The events of OpenAI's Realtime (GA) dialect, as frozen structs; here those that every session knows.

A class is named after its wire type in CamelCase (`input_audio_buffer.commit` → `InputAudioBufferCommit`).
Bytes become events in `protocols/realtime/codec.py`; the session objects inside them are in
`protocols/realtime/session.py`; what they do is `realtime/session.py`. Server events also carry
`server_event_seq`, which grows by one per event, and a few fields marked as extensions; `channel`, in
sessions that hear several apart, is one, too. Resuming and expiring sessions are in
`protocols/realtime/lifecycle.py`; what only sessions that answer have, in
`protocols/realtime/conversation_events.py` and `protocols/realtime/responses.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType

from ..transcription.transcript import Word
from ..transcription.view import DetectedLanguage, DurationUsage, LogProb, TokenUsage
from .conversation_events import DialogueClientEvent, DialogueEvent
from .conversation_session import DialoguePatch, DialogueView
from .items import ConversationItem
from .lifecycle import NumberedEvent, SentEvent, SessionExpiring, SessionResume, SessionResumed
from .responses import ResponseCancel, ResponseCreate, ResponseEvent
from .session import SessionPatch, SessionView
from .video import VideoClientEvent, VideoEvent

DIALOGUE_CLIENT_EVENTS: Final = frozenset(
    {
        "conversation.item.create",
        "conversation.item.delete",
        "conversation.item.retrieve",
        "conversation.item.truncate",
        "input_image_buffer.append",
        "input_image_buffer.clear",
        "input_image_buffer.commit",
        "response.cancel",
        "response.create",
    }
)
"""Event types of sessions that answer; refused by name in a transcription session."""
UNSUPPORTED_CLIENT_EVENTS: Final = frozenset(
    {
        "output_audio_buffer.clear",
        "session.close",
        "session.input_audio_buffer.append",
        "transcription_session.update",
    }
)
"""Event types that clients know and no session here serves: refused by name."""


# --- from the client -----------------------------------------------------------------------------------


class SessionUpdate(SentEvent, frozen=True, tag="session.update"):
    """Change the session. Omitted fields stay, null clears."""

    session: SessionPatch | DialoguePatch


class InputAudioBufferAppend(SentEvent, frozen=True, tag="input_audio_buffer.append"):
    """Add audio bytes (base64 on the wire) in the session's input format. Never acknowledged."""

    audio: bytes


class InputAudioBufferCommit(SentEvent, frozen=True, tag="input_audio_buffer.commit"):
    """End the turn here."""


class InputAudioBufferFlush(SentEvent, frozen=True, tag="input_audio_buffer.flush"):
    """Extension: end a turn in progress at once, if there is one. Answered by `flushed`, never by `error`."""


class InputAudioBufferClear(SentEvent, frozen=True, tag="input_audio_buffer.clear"):
    """Forget the audio that was not committed."""


ClientEvent = (
    SessionUpdate
    | InputAudioBufferAppend
    | InputAudioBufferCommit
    | InputAudioBufferFlush
    | InputAudioBufferClear
    | SessionResume
    | DialogueClientEvent
    | ResponseCreate
    | ResponseCancel
    | VideoClientEvent
)


class InvalidEvent(Struct, frozen=True):
    """What the codec makes of a frame it cannot accept: the `error` event to answer with."""

    code: str
    message: str
    param: str | None = None
    event_id: str | None = None


# --- from the server -----------------------------------------------------------------------------------


class SessionCreated(NumberedEvent, frozen=True, kw_only=True, tag="session.created"):
    """First event. `id` and `created` (Unix seconds) are what vLLM's dialect reads."""

    session: SessionView | DialogueView
    id: str | UnsetType = UNSET
    created: int | UnsetType = UNSET


class SessionUpdated(NumberedEvent, frozen=True, kw_only=True, tag="session.updated"):
    """The full effective session after an update."""

    session: SessionView | DialogueView


class InputAudioBufferCommitted(NumberedEvent, frozen=True, kw_only=True, tag="input_audio_buffer.committed"):
    """A turn's audio became item `item_id`. The two times (extension) are on the session's timeline."""

    item_id: str
    previous_item_id: str | None = None
    audio_start_ms: int | UnsetType = UNSET
    audio_end_ms: int | UnsetType = UNSET
    channel: int | UnsetType = UNSET


class InputAudioBufferCleared(NumberedEvent, frozen=True, kw_only=True, tag="input_audio_buffer.cleared"):
    """The uncommitted audio is gone."""


class InputAudioBufferFlushed(NumberedEvent, frozen=True, kw_only=True, tag="input_audio_buffer.flushed"):
    """Extension: a flush was handled. `item_id` is the item it committed, null if there was nothing to."""

    item_id: str | None = None
    channel: int | UnsetType = UNSET


class InputAudioBufferSpeechStarted(
    NumberedEvent, frozen=True, kw_only=True, tag="input_audio_buffer.speech_started"
):
    """Speech began. `audio_start_ms` is where the item's audio begins: prefix padding included."""

    audio_start_ms: int
    item_id: str
    channel: int | UnsetType = UNSET


class InputAudioBufferSpeechStopped(
    NumberedEvent, frozen=True, kw_only=True, tag="input_audio_buffer.speech_stopped"
):
    """Speech ended. `audio_end_ms` is where the item's audio ends: tail padding included."""

    audio_end_ms: int
    item_id: str
    channel: int | UnsetType = UNSET


class InputAudioBufferUtteranceEnded(
    NumberedEvent, frozen=True, kw_only=True, tag="input_audio_buffer.utterance_ended"
):
    """Extension: for `utterance_end_ms` of audio no word has followed the last one, which is of `item_id`."""

    item_id: str
    last_word_end_ms: int
    channel: int | UnsetType = UNSET


class InputAudioBufferBackpressure(
    NumberedEvent, frozen=True, kw_only=True, tag="input_audio_buffer.backpressure"
):
    """Extension: half of the audio backlog is used up; slow down, or appends will be refused."""

    buffered_ms: int
    limit_ms: int


class ConversationItemAdded(NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.added"):
    """A committed turn, a created item or an answer joined the conversation."""

    item: ConversationItem
    previous_item_id: str | None = None
    channel: int | UnsetType = UNSET


class ConversationItemDone(NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.done"):
    """The item is complete; the transcription of a turn still runs."""

    item: ConversationItem
    previous_item_id: str | None = None
    channel: int | UnsetType = UNSET


class ConversationItemInputAudioTranscriptionDelta(
    NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.delta"
):
    """Text that will not be taken back; may come before the item is committed."""

    item_id: str
    content_index: int = 0
    delta: str = ""
    logprobs: list[LogProb] | UnsetType = UNSET
    """Of the tokens that end in it, where the session includes them."""
    words: list[Word] | UnsetType = UNSET
    """Extension, of models that stream, where words are to have times: those that are complete since the last
    delta, in seconds from the item's start."""
    channel: int | UnsetType = UNSET


class ConversationItemInputAudioTranscriptionCompleted(
    NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.completed"
):
    """The exact transcript of the item's audio. `words` (extension): seconds from the item's start."""

    item_id: str
    transcript: str
    usage: TokenUsage | DurationUsage
    content_index: int = 0
    languages: list[DetectedLanguage] | UnsetType | None = UNSET
    logprobs: list[LogProb] | UnsetType | None = UNSET
    words: list[Word] | UnsetType = UNSET
    channel: int | UnsetType = UNSET


class ConversationItemInputAudioTranscriptionSegment(
    NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.segment"
):
    """One segment of the final text, if asked for; seconds from the item's start. No speaker is known."""

    id: str
    item_id: str
    text: str
    start: float
    end: float
    content_index: int = 0
    speaker: str = ""
    channel: int | UnsetType = UNSET


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """What went wrong. `event_id` is the client event's, where one is to blame."""

    type: str | None = None
    code: str | None = None
    message: str | None = None
    param: str | None = None
    event_id: str | UnsetType | None = UNSET


class ConversationItemInputAudioTranscriptionFailed(
    NumberedEvent, frozen=True, kw_only=True, tag="conversation.item.input_audio_transcription.failed"
):
    """The item's transcription failed; the session goes on."""

    item_id: str
    error: ErrorDetail
    content_index: int = 0
    channel: int | UnsetType = UNSET


class Error(NumberedEvent, frozen=True, kw_only=True, tag="error"):
    """Something was refused or failed. Most errors keep the session open; else a close follows."""

    error: ErrorDetail


ServerEvent = (
    SessionCreated
    | SessionUpdated
    | SessionResumed
    | SessionExpiring
    | InputAudioBufferCommitted
    | InputAudioBufferCleared
    | InputAudioBufferFlushed
    | InputAudioBufferSpeechStarted
    | InputAudioBufferSpeechStopped
    | InputAudioBufferUtteranceEnded
    | InputAudioBufferBackpressure
    | ConversationItemAdded
    | ConversationItemDone
    | ConversationItemInputAudioTranscriptionDelta
    | ConversationItemInputAudioTranscriptionCompleted
    | ConversationItemInputAudioTranscriptionSegment
    | ConversationItemInputAudioTranscriptionFailed
    | DialogueEvent
    | ResponseEvent
    | VideoEvent
    | Error
)
