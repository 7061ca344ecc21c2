"""The flat realtime dialect: vLLM's events on `/v1/realtime`, as frozen structs.

One utterance is everything between two `commit{final: true}`: `transcription.delta`s, then one
`transcription.done` whose text is the deltas joined. No items, no turns. Which dialect a connection speaks
is found out in `protocols/realtime/codec.py`; what the events do is `realtime/vllm_session.py`. Appends are
the same `InputAudioBufferAppend` as in the other dialect, 16 kHz PCM16.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct, UnsetType

from ..transcription.options import Prompt
from .events import InputAudioBufferAppend, InvalidEvent, SessionCreated, SessionUpdated
from .lifecycle import SentEvent

FLAT_RATE: Final = 16_000
"""Samples per second of appended audio, once the first update has arrived."""


# --- from the client -----------------------------------------------------------------------------------


class FlatUpdate(SentEvent, frozen=True, forbid_unknown_fields=False, tag="session.update"):
    """Choose the model ("" is the default one); required before the first commit.

    `language` (code, tag or name) and `prompt` guide the transcription; null clears them. `include` and
    `timestamp_granularities`, which other servers know, are refused unless empty; `event_id` is not read, and
    what nobody knows is passed over, as vLLM does: `session.updated` says what holds.
    """

    model: str
    language: str | UnsetType | None = UNSET
    prompt: Prompt | UnsetType | None = UNSET
    include: list[str] | UnsetType | None = UNSET
    timestamp_granularities: list[str] | UnsetType | None = UNSET


class FlatCommit(SentEvent, frozen=True, tag="input_audio_buffer.commit"):
    """`final`: the utterance ends here and is answered. Else: nothing happens, listening is always on."""

    final: bool = False


FlatClientEvent = FlatUpdate | FlatCommit | InputAudioBufferAppend


class FlatInvalid(InvalidEvent, frozen=True):
    """What the codec makes of a frame it cannot accept, of a client that speaks this dialect."""


FlatControl = FlatUpdate | FlatCommit | FlatInvalid
"""What tells the session that the client speaks this dialect."""


# --- from the server -----------------------------------------------------------------------------------


class TranscriptionDelta(Struct, frozen=True, tag_field="type", tag="transcription.delta"):
    """More text of the utterance, never empty. `logprobs` is a field newer clients read; always null."""

    delta: str
    logprobs: None = None


class FlatUsage(Struct, frozen=True):
    """Tokens of one utterance, summed over its turns. The details are always null."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


class TranscriptionDone(Struct, frozen=True, tag_field="type", tag="transcription.done"):
    """The answer to a final commit: the utterance's deltas joined."""

    text: str
    usage: FlatUsage | None = None


class FlatError(Struct, frozen=True, tag_field="type", tag="error"):
    """Something was refused or failed; the socket stays open unless a close follows."""

    error: str
    code: str | None = None


FlatServerEvent = SessionCreated | SessionUpdated | TranscriptionDelta | TranscriptionDone | FlatError
