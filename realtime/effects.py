"""What a session asks its actor to do. Plain data; `actors/live/session.py` performs it, in order.

Positions are sample counts on the session's 16 kHz timeline, which its channels share.
"""

from __future__ import annotations

import msgspec

from ..protocols.engine.messages import ItemId
from ..protocols.realtime.events import ServerEvent
from ..protocols.realtime.vllm_events import FlatServerEvent
from ..protocols.shared.container_format import InputFormat
from ..protocols.transcription.streaming import Segmentation
from ..protocols.transcription.transcript import TranscriptionOptions
from .dialogue.effects import DialogueEffect


class Send(msgspec.Struct, frozen=True):
    """Write one event to the client, or what it reads `instead` in the flat dialect (maybe nothing)."""

    event: ServerEvent
    instead: tuple[FlatServerEvent, ...] | None = None


class ConfigureAudio(msgspec.Struct, frozen=True):
    """Bytes that arrive from now on are in this format; its channels are kept apart, or all mixed."""

    format: InputFormat
    num_channels: int = 1
    """What is heard."""


class ConfigureTranscription(msgspec.Struct, frozen=True):
    """Items whose first `Transcribe` comes later use this model and these options."""

    model: str
    options: TranscriptionOptions
    delay_ms: int | None = None
    """Of a model that streams: one of its own."""


class Transcribe(msgspec.Struct, frozen=True):
    """Transcribe [start_sample, end_sample) of item `item_id`; all of that audio is in the store.

    Answered by one `HypothesisReady` or `HypothesisFailed` with the same four values, soon or late.
    `start_sample` is the same for every request of an item. `final`: the answer must be the exact
    offline transcript of the range, unless it is heard behind others. There is at most one unanswered
    request per item.
    """

    item_id: ItemId
    start_sample: int
    end_sample: int
    final: bool
    channel: int = 0
    before: tuple[int, ...] = ()
    """Where earlier turns begin that the item may be heard behind, ascending; the audio from there on is in
    the store, too. The same for every request of an item."""

    @property
    def question(self) -> tuple[ItemId, int, int, bool]:
        """What its answer repeats."""
        return self.item_id, self.start_sample, self.end_sample, self.final


class ContinueStream(msgspec.Struct, frozen=True):
    """Transcribe the stream `stream_id` up to `end_sample`; all of its audio from `start_sample` on is in the
    store, and what the last answer said that it needs.

    Words before `start_sample`, which never decreases, were taken or are not wanted. Answered by one
    `SegmentsReady` or `StreamFailed` with the same question, soon or late; a newer question replaces it.
    """

    stream_id: ItemId
    stream_start: int
    start_sample: int
    end_sample: int
    segmentation: Segmentation
    shown_start: int | None = None
    """The segment ends with `end_sample`, whatever is said, and begins there; None: it may go on."""
    channel: int = 0

    @property
    def key(self) -> tuple[ItemId, int, int, int | None]:
        """What tells it from other questions."""
        return self.stream_id, self.start_sample, self.end_sample, self.shown_start


class EndStream(msgspec.Struct, frozen=True):
    """No more `ContinueStream` for the stream: drop its state."""

    stream_id: ItemId


class ForgetItem(msgspec.Struct, frozen=True):
    """No more `Transcribe` for the item: cancel what runs for it and drop its state.

    An answer that is already on its way is ignored.
    """

    item_id: ItemId


class ForgetBefore(msgspec.Struct, frozen=True):
    """Audio before `sample` will never be asked for again. Never decreases."""

    sample: int
    channel: int = 0


class ResetVoiceActivity(msgspec.Struct, frozen=True):
    """What comes next does not continue what was heard: forget the model's state. Positions go on."""

    channel: int = 0


class FindCut(msgspec.Struct, frozen=True):
    """Speech does not pause: say where `[after, before)` is cut best, by a `CutFound` at once."""

    after: int
    before: int
    channel: int = 0


class Close(msgspec.Struct, frozen=True):
    """Close the socket once everything sent before has been written. The last effect of a session."""

    code: int
    reason: str


Effect = (
    Send
    | ConfigureAudio
    | ConfigureTranscription
    | Transcribe
    | ContinueStream
    | EndStream
    | ForgetItem
    | ForgetBefore
    | ResetVoiceActivity
    | FindCut
    | Close
    | DialogueEffect
)
