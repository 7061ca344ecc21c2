"""What happens to a session: client events (decoded) and facts its actor reports.

Appends do not come as wire events: the actor asks `Session.admit`, stores the samples, and reports
`AudioAppended`, then one `SpeechScored` per 512-sample frame. See `realtime/effects.py` for the answers.
"""

from __future__ import annotations

import msgspec

from ..protocols.engine.messages import ItemId
from ..protocols.errors import SensoriumError
from ..protocols.realtime.conversation_events import DialogueClientEvent
from ..protocols.realtime.events import (
    InputAudioBufferClear,
    InputAudioBufferCommit,
    InputAudioBufferFlush,
    InvalidEvent,
    SessionUpdate,
)
from ..protocols.realtime.responses import ResponseCancel, ResponseCreate
from ..protocols.realtime.video import VideoClientEvent
from ..protocols.transcription.streaming import StreamAnswer
from ..protocols.transcription.transcript import Transcript
from .dialogue.effects import DialogueFact
from .effects import ContinueStream


class AudioAppended(msgspec.Struct, frozen=True):
    """`num_samples` more 16 kHz samples are in the store, after decoding and resampling (may be 0)."""

    num_samples: int
    channel: int = 0


class AudioRefused(msgspec.Struct, frozen=True):
    """The bytes of an append could not be decoded; nothing was stored."""

    error: SensoriumError
    event_id: str | None = None


class SpeechScored(msgspec.Struct, frozen=True):
    """Voice activity of the 512 samples that end at `end_sample`; in order, without gaps, in every
    turn detection mode (without detection the scores only keep silence from being transcribed early).
    """

    end_sample: int
    probability: float
    channel: int = 0


class CutFound(msgspec.Struct, frozen=True):
    """Answer to `FindCut`: the likeliest gap between two words, in (after, before]."""

    sample: int
    channel: int = 0


class HypothesisReady(msgspec.Struct, frozen=True):
    """Answer to the `Transcribe` with these four values."""

    item_id: ItemId
    start_sample: int
    end_sample: int
    final: bool
    transcript: Transcript


class HypothesisFailed(msgspec.Struct, frozen=True):
    """The `Transcribe` with these four values failed."""

    item_id: ItemId
    start_sample: int
    end_sample: int
    final: bool
    error: SensoriumError


class SegmentsReady(msgspec.Struct, frozen=True):
    """Answer to `question`."""

    question: ContinueStream
    answer: StreamAnswer


class StreamFailed(msgspec.Struct, frozen=True):
    """`question` failed. The stream goes on behind the audio that it was about, and needs what it has from
    `kept_from` on."""

    question: ContinueStream
    error: SensoriumError
    kept_from: int


class ClientReturned(msgspec.Struct, frozen=True):
    """A client resumed the session on another socket."""


class DrainStarted(msgspec.Struct, frozen=True):
    """The server is stopping: finish what was said, then close."""


ClientRequest = (
    SessionUpdate
    | InputAudioBufferCommit
    | InputAudioBufferFlush
    | InputAudioBufferClear
    | InvalidEvent
    | DialogueClientEvent
    | ResponseCreate
    | ResponseCancel
    | VideoClientEvent
)
SessionEvent = (
    ClientRequest
    | AudioAppended
    | AudioRefused
    | SpeechScored
    | CutFound
    | HypothesisReady
    | HypothesisFailed
    | SegmentsReady
    | StreamFailed
    | ClientReturned
    | DrainStarted
    | DialogueFact
)
