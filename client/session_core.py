"""The client's half of a live session as a pure machine: frames out, events in, and when it is over.

Knows no sockets, no threads and no clock. Both shells (`client/realtime.py`, `client/async_realtime.py`) only
move its frames. `finish` needs to know when every turn is answered even if the server's own turn detector
commits at the same moment, so it sends a commit and then a *fence*: clearing the (now empty) buffer, which
the server answers with exactly one `cleared` after everything before it. Read next: `client/events.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Unpack, get_args

import msgspec
from websockets.exceptions import ConnectionClosed

from ..protocols.audio import AudioFormat, Encoding
from ..protocols.codec import decode_server_event, encode_event
from ..protocols.realtime import (
    InputAudioBufferAppend,
    InputAudioBufferClear,
    InputAudioBufferCommit,
    InputAudioBufferFlush,
)
from ..protocols.realtime_session import Delay, Granularity
from .audio import Pacer
from .connection import close_details
from .errors import APIError, SensoriumTimeoutError, SessionClosedError
from .events import (
    Cleared,
    Committed,
    Completed,
    Delta,
    ErrorEvent,
    Event,
    Failed,
    ItemAdded,
    ItemDone,
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    UnknownEvent,
)
from .requests import SpeechOptions, given
from .resume import Resumption, is_lost

AudioChunk = bytes | bytearray | memoryview
TurnDetection = Literal["server_vad"] | Mapping[str, Any] | None

MAX_FRAME_BYTES: Final = 256 * 1024
"""Largest piece of audio in one message; longer chunks are cut (OpenAI's limit is 15 MiB of base64)."""

AHEAD_SHARE: Final = 0.25
"""Share of the server's announced backlog limit that a file may run ahead of real time."""

_FORMAT_NAMES: Final[dict[Encoding, str]] = {"pcm16": "audio/pcm", "pcmu": "audio/pcmu", "pcma": "audio/pcma"}

_OF_TRANSCRIPTION: Final = (*SpeechOptions.__annotations__, "delay", "timestamp_granularities")

_STATUSES: Final = {
    "model_not_found": 404,
    "session_not_found": 404,
    "too_many_sessions": 503,
    "draining": 503,
    "unavailable": 503,
}
"""What REST would answer where a session cannot begin; 400 if not here."""
_COMPLETED: Final = "conversation.item.input_audio_transcription.completed"
_EMPTY_COMMIT: Final = "input_audio_buffer_commit_empty"


class SessionOptions(SpeechOptions, total=False):
    """What a live session can be asked for beside its model. What is not given has the server's default.

    Parameters
    ----------
    delay
        How long text waits before it is shown: minimal, low, medium, high or xhigh. Less is sooner, more is
        corrected less often; the server's default if not given.
    sample_rate
        8000, 16000, 24000 (if not given) or 48000, of pcm16; the others always have 8000.
    encoding
        pcm16 (if not given), pcmu or pcma.
    turn_detection
        server_vad if not given; None leaves the turns to `commit`, a mapping is sent as it is.
    timestamp_granularities
        word, segment or both: finals carry them with their times.
    binary
        False sends audio as base64 in JSON, for servers that take no binary frames.
    resume
        False ends the session with its connection, instead of going on with another one.
    """

    delay: Delay | None
    sample_rate: int
    encoding: Encoding
    turn_detection: TurnDetection
    timestamp_granularities: Sequence[Granularity]
    binary: bool
    resume: bool


class SessionCore:
    """One live session seen from the client. Not thread-safe: the sync shell holds a lock around it.

    Raises ValueError naming the option at fault, TypeError for one that does not exist.
    """

    def __init__(self, model: str | None = None, **options: Unpack[SessionOptions]) -> None:
        asked = given(options, SessionOptions)
        self._turn_detection: TurnDetection = options.get("turn_detection", "server_vad")
        self._transcription = {name: asked[name] for name in _OF_TRANSCRIPTION if name in asked}
        if model:
            self._transcription["model"] = model
        self._is_binary = options.get("binary", True)
        encoding: Encoding = options.get("encoding", "pcm16")
        delay = options.get("delay")
        if encoding not in _FORMAT_NAMES:
            raise ValueError(f"encoding is {encoding!r}: expected one of {', '.join(_FORMAT_NAMES)}")
        if isinstance(self._turn_detection, str) and self._turn_detection != "server_vad":
            raise ValueError(
                f"turn_detection is {self._turn_detection!r}: expected 'server_vad', a mapping or None"
            )
        if delay is not None and delay not in get_args(Delay):
            raise ValueError(f"delay is {delay!r}: expected one of {', '.join(get_args(Delay))}")
        rate = options.get("sample_rate", 24_000) if encoding == "pcm16" else 8_000
        self.audio_format = AudioFormat(encoding, rate)
        self.created: SessionCreated | None = None
        self.updated: SessionUpdated | None = None
        self.ready = False
        """The server has accepted the settings."""
        self.audio_s = 0.0
        """Seconds of audio given to `append`."""
        self.last_error: str | None = None
        self._partial_sample = b""
        self._in_flight: dict[str, None] = {}
        self._spoken: set[str] = set()
        self._held: dict[str, list[Event]] = {}
        self._num_fences = 0
        self._finishing = False
        self.resumption = Resumption()
        """What is needed to go on after the connection was lost."""
        if not options.get("resume", True):
            self.resumption.forgo()

    @property
    def finishing(self) -> bool:
        """`finish` was called and audio has not been appended since."""
        return self._finishing

    @property
    def finished(self) -> bool:
        """`finish` was called and every turn since has been answered."""
        return self._finishing and not self._num_fences and not self._in_flight

    @property
    def num_unfinished(self) -> int:
        """Committed turns whose transcript has not come yet."""
        return len(self._in_flight)

    @property
    def max_ahead_s(self) -> float:
        """How far audio may be sent ahead of real time without reaching the server's backlog limit."""
        if self.created is None:
            return float("inf")
        return AHEAD_SHARE * self.created.session.limits.max_backlog_ms / 1000

    def opening(self) -> list[str]:
        """Frames that configure the session, in OpenAI's shape; to be sent before any audio."""
        audio_format: dict[str, Any] = {"type": _FORMAT_NAMES[self.audio_format.encoding]}
        if self.audio_format.encoding == "pcm16":
            audio_format["rate"] = self.audio_format.rate
        turns = self._turn_detection
        audio_input = {
            "format": audio_format,
            "transcription": self._transcription,
            "turn_detection": {"type": turns} if isinstance(turns, str) else turns,
        }
        session = {"type": "transcription", "audio": {"input": audio_input}}
        return [msgspec.json.encode({"type": "session.update", "session": session}).decode()]

    def pacer(self, *, start: float, speed: float | None) -> Callable[[AudioChunk], float]:
        """When each chunk of a recording may leave, as `Pacer` says; None keeps to the server's backlog."""
        pacer = Pacer(start=start, speed=speed, max_ahead_s=self.max_ahead_s)
        return lambda chunk: pacer.next_time(len(chunk) / self.audio_format.bytes_per_second)

    def begin(self) -> None:
        """More audio is coming, also after `finish`."""
        self._finishing = False

    def append(self, chunk: AudioChunk) -> Iterator[str | bytes]:
        """Frames that carry `chunk`. A sample cut in two by a chunk's end waits for the next chunk."""
        self.begin()
        audio_format = self.audio_format
        width = audio_format.bytes_per_sample
        data = self._partial_sample + bytes(chunk)
        whole = len(data) - len(data) % width
        self._partial_sample = data[whole:]
        self.audio_s += whole / audio_format.bytes_per_second
        step = MAX_FRAME_BYTES - MAX_FRAME_BYTES % width
        for start in range(0, whole, step):
            piece = data[start : min(start + step, whole)]
            yield piece if self._is_binary else encode_event(InputAudioBufferAppend(audio=piece))

    def commit(self) -> list[str]:
        """Frames that end the current turn now. Raises ValueError if half a sample is left over."""
        self._check_whole()
        return [encode_event(InputAudioBufferCommit())]

    def flush(self) -> list[str]:
        """Frames that ask for all that was said so far. Raises ValueError if half a sample is left over."""
        self._check_whole()
        return [encode_event(InputAudioBufferFlush())]

    def clear(self) -> list[str]:
        """Frames that discard the audio of the current turn."""
        self._partial_sample = b""
        self._num_fences += 1
        return [encode_event(InputAudioBufferClear())]

    def finish(self) -> list[str]:
        """Frames that commit what is left and fence it off; `finished` turns true when all is answered."""
        frames = self.commit() + self.clear()
        self._finishing = True
        return frames

    def receive(self, frame: str | bytes) -> list[Event]:
        """The events to show for a frame; none if it only concerns this machine.

        Raises APIError when the server refuses the settings, that is for an `error` before `ready`.
        """
        try:
            event = decode_server_event(frame)
        except ValueError:
            return [UnknownEvent("", {"frame": frame})]
        if not self.resumption.arrived(event):
            return []
        was_spoken = self._item_id(event) in self._spoken
        self._track(event)
        match event:
            case ErrorEvent() if not self.ready:
                problem = event.error
                message = self.last_error or "the session was refused"
                raise APIError(_STATUSES.get(problem.code or "", 400), problem.code, problem.param, message)
            case ErrorEvent() if self._finishing and event.error.code == _EMPTY_COMMIT:
                return []  # the closing commit found nothing left over, which is how it should be
            case Cleared() if self._finishing:
                return []
            case _:
                return [event] if was_spoken else self._without_silence(event)

    def check_silence(self, timeout_s: float) -> None:
        """Nothing came for so long. Raises SensoriumTimeoutError if something should have come."""
        if not self.ready:
            raise SensoriumTimeoutError(f"the server did not accept the session within {timeout_s:g} s")
        if self.finishing:
            raise SensoriumTimeoutError(f"no event for {timeout_s:g} s while waiting for the last turn")

    def can_resume(self, error: ConnectionClosed) -> bool:
        """Whether the session may go on with another connection after `error` ended one."""
        return self.ready and self.resumption.grace_s > 0 and is_lost(error)

    def closed(self, error: ConnectionClosed) -> SessionClosedError:
        """The error for a connection that ended before `finished`."""
        code, reason = close_details(error)
        return SessionClosedError(
            code,
            reason,
            num_unfinished=self.num_unfinished,
            last_error=self.last_error,
            not_resumed=self.resumption.not_resumed,
        )

    def _check_whole(self) -> None:
        if self._partial_sample:
            encoding = self.audio_format.encoding
            raise ValueError(f"the audio ends in the middle of a sample: {encoding} samples have 2 bytes")

    def _track(self, event: Event) -> None:
        match event:
            case SessionCreated():
                self.created = event
            case SessionUpdated():
                self.updated = event
                self.ready = True
            case SpeechStarted() | Delta():
                self._spoken.add(event.item_id)
            case Committed():
                self._in_flight[event.item_id] = None
            case Completed() | Failed():
                self._in_flight.pop(event.item_id, None)
                self._spoken.discard(event.item_id)
            case Cleared():
                self._num_fences = max(0, self._num_fences - 1)
                self._spoken &= self._in_flight.keys()  # what was being said is gone
            case ErrorEvent():
                self.last_error = event.error.message or event.error.code
            case UnknownEvent():
                self._track_unknown(event)
            case _:
                pass

    def _track_unknown(self, event: UnknownEvent) -> None:
        """Another server's event in a shape of its own still counts by its name."""
        item_id = event.data.get("item_id")
        if event.type == "session.updated":
            self.ready = True
        elif event.type == _COMPLETED and isinstance(item_id, str):
            self._in_flight.pop(item_id, None)

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


class SessionShell:
    """What both shells show of their session."""

    def __init__(self, core: SessionCore) -> None:
        self._core = core

    @property
    def created(self) -> SessionCreated | None:
        """The server's greeting: session id, limits, capabilities."""
        return self._core.created

    @property
    def updated(self) -> SessionUpdated | None:
        """The settings in force."""
        return self._core.updated

    @property
    def audio_s(self) -> float:
        """Seconds of audio sent so far."""
        return self._core.audio_s
