"""What the client's machines of live sessions share: the greeting, audio out, and when a connection is over.

Knows no sockets, no threads and no clock. `client/realtime/transcription_machine.py` is the machine of
sessions that transcribe, `client/realtime/conversation_machine.py` of those that answer;
`client/realtime/socket.py` and `client/realtime/async_socket.py` move their frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypedDict

from websockets.exceptions import ConnectionClosed

from ...protocols.errors import BadRequestError
from ...protocols.realtime.codec import decode_server_event, encode_event
from ...protocols.realtime.events import InputAudioBufferAppend, InputAudioBufferCommit
from ...protocols.shared.audio_format import WIRE_TYPES, AudioFormat, Encoding
from ...protocols.shared.container_format import CONTAINER_TYPES, ContainerFormat, parse_container
from ..audio import Pacer
from ..connection import close_details
from ..errors import APIError, SensoriumTimeoutError, SessionClosedError
from .events import ErrorEvent, Event, SessionCreated, SessionUpdated, UnknownEvent
from .resume import Resumption, is_lost

AudioChunk = bytes | bytearray | memoryview
TurnDetection = Literal["server_vad", "captions"] | Mapping[str, Any] | None

MAX_FRAME_BYTES: Final = 256 * 1024
"""Largest piece of audio in one message; longer chunks are cut (OpenAI's limit is 15 MiB of base64)."""

AHEAD_SHARE: Final = 0.25
"""Share of the server's announced backlog limit that a file may run ahead of real time."""

_STATUSES: Final = {
    "model_not_found": 404,
    "session_not_found": 404,
    "too_many_sessions": 503,
    "draining": 503,
    "unavailable": 503,
}
"""What REST would answer where a session cannot begin; 400 if not here."""


TWO_READERS: Final = "this session is being iterated already: every event is given once"


class LeftError(SessionClosedError):
    """We have closed the session ourselves; iteration ends."""

    def __init__(self) -> None:
        super().__init__(1000, "the session was left", by_us=True)


class LiveOptions(TypedDict, total=False):
    """How audio and the connection of a live session are, of either type.

    Parameters
    ----------
    sample_rate
        8000, 16000, 24000 (if not given) or 48000, of pcm16; the others always have 8000.
    encoding
        pcm16 (if not given), pcmu or pcma.
    audio_format
        Container of the bytes instead, as audio/webm;codecs=opus, audio/ogg, audio/mp4, audio/mpeg,
        audio/flac, audio/aac, or auto; they are sent as they are and at once, whatever `speed` says.
    num_channels
        Of the audio: raw samples of several channels are interleaved. 1 if not given.
    turn_detection
        server_vad if not given; captions are for models that stream, and have no turns; None leaves the turns
        to `commit`, a mapping is sent as it is.
    binary
        False sends audio and frames as base64 in JSON, for servers that take no binary frames.
    resume
        False ends the session with its connection, instead of going on with another one.
    """

    sample_rate: int
    encoding: Encoding
    audio_format: str
    num_channels: int
    turn_detection: TurnDetection
    binary: bool
    resume: bool


class LiveCore:
    """One live session seen from the client. Not thread-safe: a shell for threads holds a lock around it.

    Raises ValueError naming the option at fault.
    """

    def __init__(self, options: LiveOptions) -> None:
        self._turn_detection: TurnDetection = options.get("turn_detection", "server_vad")
        self._is_binary = options.get("binary", True)
        encoding: Encoding = options.get("encoding", "pcm16")
        if encoding not in WIRE_TYPES:
            raise ValueError(f"encoding is {encoding!r}: expected one of {', '.join(WIRE_TYPES)}")
        if isinstance(self._turn_detection, str) and self._turn_detection not in ("server_vad", "captions"):
            raise ValueError(
                f"turn_detection is {self._turn_detection!r}: expected 'server_vad', 'captions' (models that "
                "stream), a mapping or None"
            )
        rate = options.get("sample_rate", 24_000) if encoding == "pcm16" else 8_000
        self.audio_format = AudioFormat(encoding, rate, options.get("num_channels", 1))
        self.container = _container(options)
        """What the bytes are in, where they are no raw samples."""
        self.created: SessionCreated | None = None
        self.updated: SessionUpdated | None = None
        self.ready = False
        """The server has accepted the settings."""
        self.audio_s = 0.0
        """Seconds of audio given to `append`, where that is known: not in a container."""
        self.last_error: str | None = None
        self._partial_sample = b""
        self.resumption = Resumption()
        """What is needed to go on after the connection was lost."""
        if not options.get("resume", True):
            self.resumption.forgo()

    @property
    def finished(self) -> bool:
        """Everything that was to come has come."""
        return False

    @property
    def num_unfinished(self) -> int:
        """Turns and answers that have not ended."""
        return 0

    @property
    def max_ahead_s(self) -> float:
        """How far audio may be sent ahead of real time without reaching the server's backlog limit."""
        if self.created is None:
            return float("inf")
        return AHEAD_SHARE * self.created.session.limits.max_backlog_ms / 1000

    def opening(self) -> list[str]:
        """Frames that configure the session, in OpenAI's shape; to be sent before anything else."""
        raise NotImplementedError

    def pacer(self, *, start: float, speed: float | None) -> Callable[[AudioChunk], float]:
        """When each chunk of a recording may leave, as `Pacer` says; None keeps to the server's backlog."""
        if self.container is not None:
            return lambda _: start
        pacer = Pacer(start=start, speed=speed, max_ahead_s=self.max_ahead_s)
        return lambda chunk: pacer.next_time(memoryview(chunk).nbytes / self.audio_format.bytes_per_second)

    @staticmethod
    def check_chunks(chunks: object) -> None:
        """Raise TypeError for audio that is no iterable of chunks: its items would be numbers."""
        if isinstance(chunks, AudioChunk):
            raise TypeError(f"chunks is {type(chunks).__name__}: expected an iterable of them; write [audio]")

    def append(self, chunk: AudioChunk) -> Iterator[str | bytes]:
        """Frames that carry `chunk`. A sample cut in two by a chunk's end waits for the next chunk.

        Raises TypeError for numbers that are no samples, as float32: read byte by byte they are noise.
        """
        audio_format = self.audio_format
        is_raw = self.container is None
        view = memoryview(chunk)
        if view.itemsize > 1 and not (view.format == "h" and is_raw and audio_format.encoding == "pcm16"):
            raise TypeError(f"audio is bytes, or int16 for pcm16, not numbers of the type {view.format!r}")
        width = audio_format.bytes_per_frame if is_raw else 1
        data = self._partial_sample + bytes(view)
        whole = len(data) - len(data) % width
        self._partial_sample = data[whole:]
        self.audio_s += whole / audio_format.bytes_per_second if is_raw else 0.0
        step = MAX_FRAME_BYTES - MAX_FRAME_BYTES % width
        for start in range(0, whole, step):
            piece = data[start : min(start + step, whole)]
            yield self.audio_frame(piece)

    def audio_frame(self, piece: bytes) -> str | bytes:
        """The frame that carries so much audio."""
        return piece if self._is_binary else encode_event(InputAudioBufferAppend(audio=piece))

    def commit(self) -> list[str]:
        """Frames that end the current turn now. Raises ValueError if half a sample is left over."""
        self.check_whole()
        return [encode_event(InputAudioBufferCommit())]

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
        match event:
            case SessionCreated():
                self.created = event
            case SessionUpdated():
                self.updated = event
                self.ready = True
            case UnknownEvent(type="session.updated"):  # another server's, in a shape of its own
                self.ready = True
            case ErrorEvent(error=problem):
                self.last_error = problem.message or problem.code
                if not self.ready:
                    message = self.last_error or "the session was refused"
                    raise APIError(
                        _STATUSES.get(problem.code or "", 400), problem.code, problem.param, message
                    )
            case _:
                pass
        return self.shown(event)

    def shown(self, event: Event) -> list[Event]:
        """What the caller sees of an event."""
        raise NotImplementedError

    def check_silence(self, timeout_s: float) -> None:
        """Nothing came for so long. Raises SensoriumTimeoutError if something should have come."""
        if not self.ready:
            raise SensoriumTimeoutError(f"the server did not accept the session within {timeout_s:g} s")

    def can_resume(self, error: ConnectionClosed) -> bool:
        """Whether the session may go on with another connection after `error` ended one."""
        return self.ready and self.resumption.grace_s > 0 and is_lost(error)

    def can_begin_again(self, error: ConnectionClosed) -> bool:  # noqa: ARG002
        """Whether another session may go on where this one ends, after `error` and all that was tried."""
        return False

    def begin_again(self, created: SessionCreated) -> list[str | bytes]:
        """Frames for another session, greeted by `created`: its settings, and what had no answer."""
        raise NotImplementedError

    def begun_again(self) -> Event:
        """What the caller is told once they have been sent."""
        raise NotImplementedError

    def sent(self, frame: str | bytes) -> None:
        """`frame` is about to be sent, as the next one, on whichever connection."""
        self.resumption.sent(frame)

    def closed(self, error: ConnectionClosed) -> SessionClosedError:
        """The error for a connection that ended before `finished`."""
        code, reason, by_us = close_details(error)
        return SessionClosedError(
            code,
            reason,
            by_us=by_us,
            num_unfinished=self.num_unfinished,
            last_error=self.last_error,
            not_resumed=self.resumption.not_resumed,
        )

    def check_whole(self) -> None:
        """Raise ValueError if half a sample is left over."""
        if self._partial_sample:
            wanted = f"{self.audio_format.encoding} has {self.audio_format.bytes_per_frame} bytes a time"
            raise ValueError(f"the audio ends in the middle of a sample: {wanted}")

    def format_params(self) -> dict[str, Any]:
        """The audio's format, in OpenAI's shape."""
        name = WIRE_TYPES[self.audio_format.encoding] if self.container is None else self.container.type
        audio_format: dict[str, Any] = {"type": name}
        if self.container is None and self.audio_format.encoding == "pcm16":
            audio_format["rate"] = self.audio_format.rate
        if self.audio_format.num_channels > 1:
            audio_format["channels"] = self.audio_format.num_channels
        return audio_format

    def turns_params(self) -> Mapping[str, Any] | None:
        """How turns are found, in OpenAI's shape."""
        turns = self._turn_detection
        return {"type": turns} if isinstance(turns, str) else turns


class SessionShell:
    """What every shell shows of its session."""

    def __init__(self, core: LiveCore) -> None:
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


def _container(options: LiveOptions) -> ContainerFormat | None:
    name = options.get("audio_format")
    if name is None:
        return None
    for other in ("sample_rate", "encoding"):
        if other in options:
            raise ValueError(f"{other} is for raw samples; with audio_format the container has it")
    try:
        container = parse_container(name, param="audio_format")
    except BadRequestError as error:
        raise ValueError(error.message) from None
    if container is None:
        raise ValueError(f"audio_format is {name!r}: expected one of {', '.join(CONTAINER_TYPES)}")
    return container
