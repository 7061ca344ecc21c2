"""The session object of the Realtime wire: what a client may change (patches) and what we show (views).

Shapes are OpenAI's GA transcription session; `limits`, `capabilities`, `timestamp_granularities` and PCM
rates other than 24 kHz are ours. Merging a patch into a session is `realtime/settings.py`; the events
that carry these objects are in `protocols/realtime/events.py`.

In a patch, a field that is UNSET leaves the session as it is and `null` clears it. Unknown fields are
refused by name, so that a misspelt setting is never silently lost.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..transcription.numerals import Numerals
from ..transcription.options import Delay, Granularity, KeywordBoost, LeftContext, Prompt, UtteranceEnd
from ..transcription.transcript import Task

FormatType = Annotated[str, Meta(max_length=100)]
"""`audio/pcm`, `audio/pcmu`, `audio/pcma`, or a container (`protocols/shared/container_format.py`)."""
Eagerness = Literal["low", "medium", "high", "auto"]
Include = Literal["item.input_audio_transcription.logprobs"]
Milliseconds = Annotated[int, Meta(ge=0, le=60_000)]
SegmentSilence = Annotated[int, Meta(ge=200, le=10_000)]
SegmentLength = Annotated[int, Meta(ge=1_000, le=60_000)]
Threshold = Annotated[float, Meta(ge=0.0, le=1.0)]
NumChannels = Annotated[int, Meta(ge=1, le=8)]
"""As many as a recording may have."""
Ignored = msgspec.Raw | UnsetType
"""Skipped, not decoded: a client could put millions of objects there."""


class FormatPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Encoding of the bytes in appends. `rate` is for `audio/pcm` only: 8, 16, 24 (default) or 48 kHz.

    `channels` is an extension: raw samples of several channels are interleaved, as in a WAV file.
    """

    type: FormatType
    rate: int | UnsetType | None = UNSET
    channels: NumChannels | UnsetType | None = UNSET


class TranscriptionPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """How to transcribe. The options are those of `protocols/transcription/options.py`; OpenAI has `model`,
    `language`, `prompt`, `languages`, `keywords` and `delay`, the others are extensions."""

    model: str | UnsetType | None = UNSET
    language: str | UnsetType | None = UNSET
    prompt: Prompt | UnsetType | None = UNSET
    languages: list[str] | UnsetType | None = UNSET
    keywords: list[str] | UnsetType | None = UNSET
    keyword_boost: KeywordBoost | UnsetType | None = UNSET
    delay: Delay | UnsetType | None = UNSET
    timestamp_granularities: list[Granularity] | UnsetType | None = UNSET
    numerals: Numerals | UnsetType | None = UNSET
    utterance_end_ms: UtteranceEnd | UnsetType | None = UNSET
    left_context_ms: LeftContext | UnsetType | None = UNSET
    task: Task | UnsetType | None = UNSET


class ServerVadPatch(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="server_vad"):
    """Turns end after `silence_duration_ms` without speech. A null field returns to its default."""

    threshold: Threshold | UnsetType | None = UNSET
    prefix_padding_ms: Milliseconds | UnsetType | None = UNSET
    silence_duration_ms: Milliseconds | UnsetType | None = UNSET
    idle_timeout_ms: int | UnsetType | None = UNSET
    create_response: bool | UnsetType | None = UNSET
    interrupt_response: bool | UnsetType | None = UNSET


class SemanticVadPatch(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="semantic_vad"):
    """Server VAD whose wait follows `eagerness`, and whether what was said sounds finished."""

    eagerness: Eagerness | UnsetType | None = UNSET
    create_response: bool | UnsetType | None = UNSET
    interrupt_response: bool | UnsetType | None = UNSET


class CaptionsPatch(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="captions"):
    """Extension, for models that stream: no turns. The session is one stream, and an item is a segment of it,
    which ends after `silence_duration_ms` without a word, or before the first word that begins
    `max_segment_ms` later than it did."""

    silence_duration_ms: SegmentSilence | UnsetType | None = UNSET
    max_segment_ms: SegmentLength | UnsetType | None = UNSET


TurnDetectionPatch = ServerVadPatch | SemanticVadPatch | CaptionsPatch


class NoiseReduction(Struct, frozen=True, forbid_unknown_fields=True):
    """Read by nobody: the models here are trained on noisy audio. OpenAI's samples ask for it beside all else
    that a session needs, so that a refusal would cost them that; what is in force says null."""

    type: Literal["near_field", "far_field"] | None = None
    strength: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None


class InputPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """`session.audio.input` of an update. `multichannel` is an extension: channels are heard apart."""

    format: FormatPatch | UnsetType | None = UNSET
    transcription: TranscriptionPatch | UnsetType | None = UNSET
    turn_detection: TurnDetectionPatch | UnsetType | None = UNSET
    noise_reduction: NoiseReduction | UnsetType | None = UNSET
    multichannel: bool | UnsetType | None = UNSET


class AudioPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """`session.audio` of an update."""

    input: InputPatch | UnsetType | None = UNSET


class SessionPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """`session` of a `session.update`.

    `model` here means the transcription model, where `audio.input.transcription.model` is not given.
    The fields below `include` are what we show; a client that sends a session back unchanged may leave
    them in, and they are ignored.
    """

    type: Literal["transcription"] | UnsetType = UNSET
    audio: AudioPatch | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    include: list[Include] | UnsetType | None = UNSET
    id: Ignored = UNSET
    object: Ignored = UNSET
    expires_at: Ignored = UNSET
    limits: Ignored = UNSET
    capabilities: Ignored = UNSET
    resume_token: Ignored = UNSET


class FormatView(Struct, frozen=True):
    """The input format in force; `rate` only for `audio/pcm`, `channels` where there are several."""

    type: FormatType
    rate: int | UnsetType = UNSET
    channels: int | UnsetType = UNSET


class TranscriptionView(TranscriptionPatch, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The transcription settings in force; `language` null means detected. Others that are as the server has
    them are left out."""

    model: str
    language: str | None = None
    prompt: str | None = None
    delay_ms: int | UnsetType = UNSET
    """Extension: what `delay` means for a model that streams, in milliseconds."""


class ServerVadView(Struct, frozen=True, tag_field="type", tag="server_vad"):
    """Server VAD in force, every value filled in."""

    threshold: float
    prefix_padding_ms: int
    silence_duration_ms: int
    idle_timeout_ms: int | None = None
    create_response: bool | UnsetType = UNSET
    interrupt_response: bool | UnsetType = UNSET


class SemanticVadView(Struct, frozen=True, tag_field="type", tag="semantic_vad"):
    """Semantic VAD in force."""

    eagerness: Eagerness
    create_response: bool | UnsetType = UNSET
    interrupt_response: bool | UnsetType = UNSET


class CaptionsView(Struct, frozen=True, tag_field="type", tag="captions"):
    """Captions in force."""

    silence_duration_ms: int
    max_segment_ms: int


TurnDetectionView = ServerVadView | SemanticVadView | CaptionsView


class InputView(Struct, frozen=True):
    """`session.audio.input` in force; no transcription where no served model hears."""

    format: FormatView
    transcription: TranscriptionView | None
    turn_detection: TurnDetectionView | None
    noise_reduction: None = None
    multichannel: bool | UnsetType = UNSET


class AudioView(Struct, frozen=True):
    """`session.audio` in force."""

    input: InputView


class LimitsView(Struct, frozen=True):
    """The bounds of a session. What happens at each is said in `realtime/session.py`."""

    max_append_bytes: int
    max_backlog_ms: int
    max_turn_s: float
    max_session_s: float
    idle_s: float
    force_turn_s: float = 0.0
    """Longest turn where the server finds the turns; 0: not known."""
    resume_grace_s: float = 0.0
    """How long the session waits for a client whose socket was lost; 0: not at all."""


class SessionView(Struct, frozen=True, kw_only=True, tag_field="type", tag="transcription"):
    """The full effective session, as `session.created` and `session.updated` carry it."""

    id: str
    object: Literal["realtime.transcription_session"] = "realtime.transcription_session"
    expires_at: int
    audio: AudioView
    include: list[Include] = msgspec.field(default_factory=list)
    limits: LimitsView
    capabilities: list[str]
    resume_token: str | UnsetType = UNSET
    """Only in `session.created`: what `session.resume` must show."""
