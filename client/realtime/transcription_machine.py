"""The client's half of a session that transcribes, as a pure machine: frames out, events in, when it is over.

`finish` needs to know when every turn is answered even if the server's own turn detector commits at the
same moment, so it sends a commit and then a *fence*: clearing the (now empty) buffer, which the server
answers with exactly one `cleared` after everything before it. Where ends of utterances are told, which come
behind answers, it sends another fence behind the last answer. What it shares with sessions that answer is
`client/realtime/machine.py`; its shells are `client/realtime/transcription.py` and
`client/realtime/async_transcription.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Unpack, get_args

import msgspec
from msgspec.structs import replace
from websockets.exceptions import ConnectionClosed

from ...protocols.realtime.codec import encode_event
from ...protocols.realtime.events import InputAudioBufferClear, InputAudioBufferFlush
from ...protocols.realtime.session import TranscriptionPatch
from ...protocols.transcription.options import Delay, Granularity, LiveSpeechOptions
from ..errors import SensoriumTimeoutError
from ..requests import given
from .events import (
    Cleared,
    Committed,
    Completed,
    Delta,
    ErrorEvent,
    Event,
    Failed,
    Flushed,
    ItemAdded,
    ItemDone,
    Reopened,
    SessionCreated,
    SpeechStarted,
    SpeechStopped,
    UnknownEvent,
    UtteranceEnded,
)
from .machine import MAX_FRAME_BYTES, AudioChunk, LiveCore, LiveOptions
from .resume import Resumption, is_server_gone
from .unanswered_audio import UnansweredAudio

_COMPLETED: Final = "conversation.item.input_audio_transcription.completed"
_CLEAR: Final = '"input_audio_buffer.clear"'
_MAX_BEGUN_AGAIN: Final = 5
"""Sessions that are opened one after the other while none of them has answered anything."""
_EMPTY_COMMIT: Final = "input_audio_buffer_commit_empty"


class SessionOptions(LiveSpeechOptions, LiveOptions, total=False):
    """What can be asked of a session that transcribes beside its model. What is not given is as the server
    has it.

    Parameters
    ----------
    timestamp_granularities
        word, segment or both: finals carry them with their times.
    multichannel
        Every channel (`num_channels`) is transcribed separately, and its events say which (`channel`, from
        0); mixed if not given.
    """

    timestamp_granularities: Sequence[Granularity]
    multichannel: bool


class SessionCore(LiveCore):
    """One live session that transcribes. Not thread-safe: the sync shell holds a lock around it.

    Raises ValueError naming the option at fault, TypeError for one that does not exist.
    """

    def __init__(self, model: str | None = None, **options: Unpack[SessionOptions]) -> None:
        requested = given(options, SessionOptions)
        super().__init__(options)
        self._transcription = {
            name: requested[name] for name in TranscriptionPatch.__struct_fields__ if name in requested
        }
        if model:
            self._transcription["model"] = model
        delay = options.get("delay")
        if delay is not None and delay not in get_args(Delay):
            raise ValueError(f"delay is {delay!r}: expected one of {', '.join(get_args(Delay))}")
        self._is_multichannel = options.get("multichannel", False)
        # The parts of a container, and the turns of several channels, are not found again by their time.
        is_plain = self.container is None and not options.get("multichannel", False)
        audio = self.audio_format
        self._unanswered = (
            UnansweredAudio(
                audio.bytes_per_second, audio.bytes_per_frame, finds_turns=self._turn_detection is not None
            )
            if is_plain and options.get("resume", True)
            else None
        )
        self._num_begun_again = 0
        """Without an answer in between."""
        self._void: list[str] = []
        """Items of earlier sessions whose turns come again."""
        self._in_flight: dict[str, None] = {}
        self._spoken: set[str] = set()
        self._held: dict[str, list[Event]] = {}
        self._num_fences = 0
        self._may_send_more = False
        """An answer came behind the last fence, and the end of an utterance may come behind the answer."""
        self._finishing = False
        """`finish` was called and audio has not been appended since."""

    @property
    def finished(self) -> bool:
        """`finish` was called and every turn since has been answered."""
        return self._is_answered and not self._may_send_more

    @property
    def needs_fence(self) -> bool:
        """Only the answer to another `clear` will show that nothing more comes."""
        return self._is_answered and self._may_send_more

    @property
    def _is_answered(self) -> bool:
        return self._finishing and not self._num_fences and not self._in_flight

    @property
    def num_unfinished(self) -> int:
        """Committed turns whose transcript has not come yet."""
        return len(self._in_flight)

    def opening(self) -> list[str]:
        """Frames that configure the session, in OpenAI's shape; to be sent before any audio."""
        audio_input: dict[str, Any] = {
            "format": self.format_params(),
            "transcription": self._transcription,
            "turn_detection": self.turns_params(),
        }
        if self._is_multichannel:
            audio_input["multichannel"] = True
        session = {"type": "transcription", "audio": {"input": audio_input}}
        return [msgspec.json.encode({"type": "session.update", "session": session}).decode()]

    def begin(self) -> None:
        """More audio is coming, also after `finish`."""
        self._finishing = False

    def append(self, chunk: AudioChunk) -> Iterator[str | bytes]:
        """As `LiveCore.append`; more audio takes `finish` back."""
        self.begin()
        return super().append(chunk)

    def flush(self) -> list[str]:
        """Frames that ask for all that was said so far. Raises ValueError if half a sample is left over."""
        self.check_whole()
        return [encode_event(InputAudioBufferFlush())]

    def clear(self) -> list[str]:
        """Frames that discard the audio of the current turn."""
        self._partial_sample = b""
        self._num_fences += 1
        self._may_send_more = False
        return [encode_event(InputAudioBufferClear())]

    def finish(self) -> list[str]:
        """Frames that commit what is left and fence it off; `finished` turns true when all is answered."""
        frames = self.commit() + self.clear()
        self._finishing = True
        return frames

    def sent(self, frame: str | bytes) -> None:
        """As `LiveCore.sent`."""
        super().sent(frame)
        if self._unanswered is not None:
            self._unanswered.sent(frame)

    def can_begin_again(self, error: ConnectionClosed) -> bool:
        """As `LiveCore.can_begin_again`: the session is gone, and all that it has not answered is here."""
        return (
            self._unanswered is not None
            and self.ready
            and (self.resumption.is_gone or is_server_gone(error))
            and self.resumption.grace_s > 0
            and self._num_begun_again < _MAX_BEGUN_AGAIN
            and self._unanswered.can_replay()
        )

    def begin_again(self, created: SessionCreated) -> list[str | bytes]:
        """As `LiveCore.begin_again`."""
        assert self._unanswered is not None
        self._num_begun_again += 1
        self._void += [*dict.fromkeys((*self._in_flight, *self._spoken))]
        self._in_flight.clear()
        self._spoken.clear()
        self._held.clear()
        self.resumption = Resumption()
        self.resumption.arrived(created)
        self.created = created
        frames: list[str | bytes] = [*self.opening()]
        self._num_fences = 0
        for each in self._unanswered.begin_again():
            if isinstance(each, bytes):
                pieces = (
                    each[start : start + MAX_FRAME_BYTES] for start in range(0, len(each), MAX_FRAME_BYTES)
                )
                frames += (self.audio_frame(piece) for piece in pieces)
            else:
                frames.append(each)
                self._num_fences += _CLEAR in each
        for frame in frames:
            self.resumption.sent(frame)
        return frames

    def begun_again(self) -> Event:
        """As `LiveCore.begun_again`."""
        assert self._unanswered is not None
        assert self.created is not None
        void, self._void = tuple(self._void), []
        return Reopened(self.created.session, void, self._unanswered.base_ms)

    def shown(self, event: Event) -> list[Event]:
        """What the caller sees: neither what `finish` asked for itself, nor the silence that it committed."""
        event = self._noted(event)
        if self._held and not self._finishing:  # more audio has come: it was no closing commit
            held = [each for events in self._held.values() for each in events]
            self._held.clear()
            return held + self._shown(event)
        return self._shown(event)

    def _shown(self, event: Event) -> list[Event]:
        was_spoken = self._item_id(event) in self._spoken
        self._track(event)
        match event:
            case ErrorEvent() if self._finishing and event.error.code == _EMPTY_COMMIT:
                return []  # the closing commit found nothing left over, which is how it should be
            case Cleared() if self._finishing:
                return []
            case UtteranceEnded():
                return [event]
            case _:
                return [event] if was_spoken else self._without_silence(event)

    def check_silence(self, timeout_s: float) -> None:
        """Nothing came for so long. Raises SensoriumTimeoutError if something should have come."""
        super().check_silence(timeout_s)
        if self._finishing:
            raise SensoriumTimeoutError(f"no event for {timeout_s:g} s while waiting for the last turn")

    def _noted(self, event: Event) -> Event:
        """Note what has been answered; the event with times that count from the first audio."""
        audio = self._unanswered
        if audio is None:
            return event
        base_ms = audio.base_ms
        match event:
            case SpeechStarted():
                audio.started(event.item_id, event.audio_start_ms)
                return replace(event, audio_start_ms=event.audio_start_ms + base_ms) if base_ms else event
            case SpeechStopped():
                audio.stopped(event.item_id, event.audio_end_ms)
                return replace(event, audio_end_ms=event.audio_end_ms + base_ms) if base_ms else event
            case UtteranceEnded():
                return replace(event, last_word_end_ms=event.last_word_end_ms + base_ms) if base_ms else event
            case Committed():
                audio.committed(event.item_id)
            case Flushed(item_id=None):
                audio.found_nothing()
            case ErrorEvent() if event.error.code == _EMPTY_COMMIT:
                audio.found_nothing()
            case Completed() | Failed():
                self._num_begun_again = 0
                audio.answered(event.item_id)
            case _:
                pass
        return event

    def _track(self, event: Event) -> None:
        match event:
            case SpeechStarted() | Delta():
                self._spoken.add(event.item_id)
            case Committed():
                self._in_flight[event.item_id] = None
            case Completed() | Failed():
                self._in_flight.pop(event.item_id, None)
                self._may_send_more = "utterance_end_ms" in self._transcription
                self._spoken.discard(event.item_id)
            case Cleared():
                self._num_fences = max(0, self._num_fences - 1)
                self._spoken &= self._in_flight.keys()  # what was being said is gone
            case UnknownEvent(type=name, data=data) if name == _COMPLETED:
                # Another server's event in a shape of its own still counts by its name.
                self._in_flight.pop(str(data.get("item_id")), None)
            case _:
                pass

    def _without_silence(self, event: Event) -> list[Event]:
        """Hide the item that the closing commit makes of trailing silence when the server detects turns.

        Whether it is silence shows only in its transcript; until then its events wait.
        """
        item_id = self._item_id(event)
        if not self._finishing or self._turn_detection is None or item_id is None:
            return [event]
        held = self._held.setdefault(item_id, [])
        held.append(event)
        match event:
            case Completed() if not event.transcript:
                del self._held[item_id]
                return []
            case Completed() | Failed() | SpeechStarted() | Delta():
                return self._held.pop(item_id)
            case _:
                return []

    @staticmethod
    def _item_id(event: Event) -> str | None:
        if isinstance(event, ItemAdded | ItemDone):
            return event.item.id
        return getattr(event, "item_id", None)
