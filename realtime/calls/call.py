"""One telephone call: a pure machine between a provider's frames and one transcription session per track.

Frames and what the sessions say come in, with the time; what to do comes out: open a track's session, have it
hear, end it, tell something. Knows no sockets and no audio. `actors/calls/call.py` drives it.

**Order.** `start` comes first, or, of others, a frame that says what their binary frames are. Frames before
it, of tracks it did not name, or without what their `event` promises are refused by an `error` event, and the
call goes on; more than `MAX_ERRORS` of them end it, and the first of them where nobody knows yet who calls.
Whether the call may be is asked once, by `Begin`. Gaps in the numbers are counted, not refused.

**End.** `stop`, or the end of the socket, ends every track: what was said to the end is transcribed, then one
`call.summary` tells the whole, and the call is over. A track whose session ends by itself is told as an
error; the others go on. Where the server stops, each session hears out who speaks, and the call ends with
the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeVar

from ...protocols.calls.frames import (
    CallEvent,
    CallEventKind,
    CallFrame,
    Dtmf,
    Media,
    MediaFormat,
    Start,
    audio_format,
    content_format,
)
from ...protocols.calls.provider_shapes import READ_STREAMS
from ...protocols.errors import BadRequestError, ClientError, SensoriumError, close_code, wrong
from ...protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    ConversationItemInputAudioTranscriptionFailed,
    Error,
    InputAudioBufferCommitted,
    InputAudioBufferFlushed,
    InputAudioBufferSpeechStarted,
    InputAudioBufferSpeechStopped,
    InputAudioBufferUtteranceEnded,
    ServerEvent,
)
from ...protocols.shared.audio_format import AudioFormat
from .effects import AppendTrackAudio, Begin, CallEffect, EndTrack, Hang, OpenTrack, SendEvent
from .track import Track

T = TypeVar("T")

START_S: Final = 10.0
"""A call that has not begun by then is none."""
FINISH_S: Final = 30.0
"""How long the last words may take."""
MAX_ERRORS: Final = 100
KEY_PARAMETER: Final = "key"
"""The parameter of `start` that shows an API key; it is given back to nobody."""
_OF_OTHER_STREAMS: Final = frozenset({"unknown_stream", "unknown_event"})
_BINARY_EARLY: Final = f"binary audio came before a text that says what it is; {READ_STREAMS}"
DRAINING: Final = "server_draining"
"""Why a track's session ends with the server, and the call with it."""


class CallMachine:
    """See the file's paragraph. Every method gives the effects to perform, in order."""

    def __init__(self, call_id: str, *, now: float, is_known: bool = True) -> None:
        """Not `is_known`: who calls is told by `start` only."""
        self.id = call_id
        self.name = call_id
        """What the provider calls the call, once it has said that."""
        self.is_over = False
        self.deadline = now + START_S
        """When `on_deadline` wants to be called."""
        self._is_known = is_known
        self._began = now
        self._parameters: dict[str, str] = {}
        self._tracks: dict[str, Track] = {}
        self._ending: str | None = None
        self._seq = 0
        self._num_errors = 0
        self._is_interleaved = False
        """See `CallFrame`."""
        self._early: set[str] = set()
        """Messages sent before the start that only a stream of an unread shape causes."""
        self._effects: list[CallEffect] = []

    def receive(self, frame: CallFrame | bytes | ClientError, *, now: float) -> Sequence[CallEffect]:
        """A frame of the provider, binary audio, or why a frame could not be read."""
        if self._ending is None and not self.is_over:
            try:
                if isinstance(frame, ClientError):
                    raise frame
                if isinstance(frame, bytes):
                    self._receive_binary(frame)
                else:
                    self._on_frame(frame, now)
            except ClientError as error:
                self._refuse(error, now)
        return self._take()

    def agreed(self) -> Sequence[CallEffect]:
        """The call may be, as `Begin` asked."""
        self._is_known = True
        tracks = [track.summary() for track in self._tracks.values()]
        self._emit("call.started", parameters=self._parameters, tracks=tracks)
        self._effects += [OpenTrack(name, track.format) for name, track in self._tracks.items()]
        return self._take()

    def refuse(self, error: SensoriumError) -> Sequence[CallEffect]:
        """The call may not be."""
        self._give_up(error)
        return self._take()

    def session_event(self, track: str, event: ServerEvent, *, now: float) -> Sequence[CallEffect]:
        """What a track's session says."""
        known = self._tracks.get(track)
        if known is not None and not self.is_over:
            self._on_event(known, event)
            self._settle(now)
        return self._take()

    def gone(self, track: str, code: str, message: str, *, now: float) -> Sequence[CallEffect]:
        """A track's session has ended by itself, or never began."""
        known = self._tracks.get(track)
        if known is not None and not known.is_gone and not self.is_over:
            known.is_gone = True
            if code != DRAINING and (self._ending is None or not known.is_flushed):
                self._emit("error", track=track, code=code, message=message)
            if self._ending is None and all(each.is_gone for each in self._tracks.values()):
                self._end(code, now)
            self._settle(now)
        return self._take()

    def drain(self, *, now: float) -> Sequence[CallEffect]:
        """The server stops. The tracks' sessions hear out who speaks, and end by themselves."""
        return () if self._tracks else self.end(DRAINING, now=now)

    def end(self, reason: str, *, now: float) -> Sequence[CallEffect]:
        """The provider has left."""
        if not self.is_over:
            self._end(reason, now)
            self._settle(now)
        return self._take()

    def problem(self, code: str, message: str) -> Sequence[CallEffect]:
        """What goes wrong beside the call, with where it is told; nothing comes behind the summary."""
        if not self.is_over:
            self._emit("error", code=code, message=message)
        return self._take()

    def on_deadline(self, *, now: float) -> Sequence[CallEffect]:
        """It has not begun, or its last words take too long."""
        if now >= self.deadline and not self.is_over:
            if self._ending is None:
                self._emit("error", code="call_not_started", message=f"no `start` came within {START_S:g} s")
            self._hang(now)
        return self._take()

    def _on_frame(self, frame: CallFrame, now: float) -> None:
        if not self._is_known and frame.event == "mark":
            raise _too_early()
        if frame.content_type is not None and not self._tracks:
            self._begin({"inbound": content_format(frame.content_type)}, Start(), now)
            return
        match frame.event:
            case "connected" | "websocket:connected" | "websocket:cleared" | "websocket:notify":
                pass
            case "start":
                self._start(_given(frame.start, "start"), now)
                self._is_interleaved = frame.is_interleaved
            case "media":
                self._receive_audio(_given(frame.media, "media"))
            case "mark":
                self._emit("mark", name=_given(frame.mark, "mark").name)
            case "dtmf" | "websocket:dtmf":
                pressed = frame.digit or frame.dtmf
                dtmf = Dtmf(pressed) if isinstance(pressed, str) else _given(pressed, "dtmf")
                track = self._track(dtmf.track.removesuffix("_track"), "dtmf.track")
                if len(track.digits) < 1000:
                    track.digits.append(dtmf.digit)
                self._emit("dtmf", track=track.name, digit=dtmf.digit, at_ms=track.at_ms)
            case "stop":
                self._end("stop", now)
                self._settle(now)
            case _:
                raise wrong(
                    "event",
                    f"is {frame.event[:40]!r}; known are connected, start, media, mark, dtmf, stop"
                    + ("" if self._tracks else f"; {READ_STREAMS}"),
                    code="unknown_event",
                )

    def _start(self, start: Start, now: float) -> None:
        if self._tracks:
            raise BadRequestError("the call has begun already", code="unexpected_event", param="event")
        media_format = start.mediaFormat or start.media_format or MediaFormat()
        found = audio_format(media_format, param="start.mediaFormat")
        names = start.tracks or ["inbound"]
        self._begin({name.removesuffix("_track"): found for name in names}, start, now)

    def _begin(self, formats: dict[str, AudioFormat], start: Start, now: float) -> None:
        names = (start.callSid, start.call_sid, start.callId, start.call_id, start.call_control_id)
        self.name = next((name for name in names if name), self.id)
        parameters = start.customParameters or start.custom_parameters or {}
        self._parameters = {name: value for name, value in parameters.items() if name != KEY_PARAMETER}
        self._began, self.deadline = now, math.inf
        self._tracks = {name: Track(name, each) for name, each in formats.items()}
        self._effects.append(Begin(parameters))

    def _track(self, name: str, param: str) -> Track:
        if not self._tracks:
            raise _too_early()
        if name not in self._tracks:
            known = ", ".join(self._tracks)
            raise wrong(param, f"is {name[:40]!r}; the call has {known}")
        return self._tracks[name]

    def _receive_audio(self, media: Media) -> None:
        track = self._track(media.track.removesuffix("_track"), "media.track")
        try:
            chunk = None if media.chunk is None else int(media.chunk)
        except ValueError:
            raise wrong("media.chunk", "is not a number") from None
        if chunk is not None:
            track.count(chunk)
        self._append_audio(track, media.payload)

    def _receive_binary(self, audio: bytes) -> None:
        """Of the first track, or of all of them: who sends binary frames has one, or interleaves them."""
        if not self._tracks:
            raise BadRequestError(_BINARY_EARLY, code="unexpected_event", param="event")
        first = next(iter(self._tracks.values()))
        if not self._is_interleaved:
            self._append_audio(first, audio)
            return
        if len(audio) % (2 * len(self._tracks)):
            raise BadRequestError(
                f"the frame has {len(audio)} bytes, no whole samples of {len(self._tracks)} channels",
                code="invalid_frame",
                param="track",
            )
        samples = memoryview(audio).cast("h")
        for place, track in enumerate(self._tracks.values()):
            self._append_audio(track, samples[place :: len(self._tracks)].tobytes())

    def _append_audio(self, track: Track, audio: bytes) -> None:
        if track.is_gone:
            return
        track.came(audio)
        self._effects.append(AppendTrackAudio(track.name, audio))

    def _on_event(self, track: Track, event: ServerEvent) -> None:
        match event:
            case InputAudioBufferSpeechStarted():
                track.starts[event.item_id] = event.audio_start_ms
                self._emit("speech.started", track=track.name, item=event.item_id, at_ms=event.audio_start_ms)
            case InputAudioBufferSpeechStopped():
                self._emit("speech.stopped", track=track.name, item=event.item_id, at_ms=event.audio_end_ms)
            case InputAudioBufferUtteranceEnded():
                item, end_ms = event.item_id, event.last_word_end_ms
                self._emit("utterance.ended", track=track.name, item=item, at_ms=end_ms)
            case InputAudioBufferCommitted():
                track.pending.add(event.item_id)
            case ConversationItemInputAudioTranscriptionDelta():
                self._emit("transcript.delta", track=track.name, item=event.item_id, text=event.delta)
            case ConversationItemInputAudioTranscriptionCompleted():
                item, text = event.item_id, event.transcript
                start = track.complete(item, text)
                self._emit("transcript.completed", track=track.name, item=item, text=text, at_ms=start)
            case ConversationItemInputAudioTranscriptionFailed():
                track.fail(event.item_id)
                problem = event.error
                self._emit(
                    "transcript.failed",
                    track=track.name,
                    item=event.item_id,
                    code=problem.code,
                    message=problem.message,
                )
            case InputAudioBufferFlushed():
                track.is_flushed = True
            case Error() if event.error.code == DRAINING:
                pass  # the summary says it
            case Error():
                problem = event.error
                self._emit(
                    "error", track=track.name, code=problem.code, message=problem.message, param=problem.param
                )
            case _:
                pass

    def _end(self, reason: str, now: float) -> None:
        if self._ending is None:
            self._ending = reason
            self.deadline = now + FINISH_S
            self._effects += [EndTrack(name) for name, track in self._tracks.items() if not track.is_gone]

    def _settle(self, now: float) -> None:
        if self._ending is not None and all(track.is_done for track in self._tracks.values()):
            self._hang(now)

    def _hang(self, now: float) -> None:
        self._emit(
            "call.summary",
            reason=self._ending or "call_not_started",
            duration_s=round(now - self._began, 3),
            tracks=[track.summary() for track in self._tracks.values()],
        )
        self.is_over, self.deadline = True, math.inf
        self._effects.append(Hang(1000, "the call is over"))

    def _give_up(self, error: SensoriumError) -> None:
        self._emit("error", code=error.code, message=error.message, param=error.param)
        self.is_over, self.deadline = True, math.inf
        self._effects.append(Hang(close_code(error), error.message))

    def _refuse(self, error: ClientError, now: float) -> None:
        if not self._is_known:
            self._give_up(error)
            return
        is_of_others = error.code in _OF_OTHER_STREAMS or error.message == _BINARY_EARLY
        if not self._tracks and is_of_others:
            is_repeated = error.message in self._early
            self._early.add(error.message)
            if is_repeated or error.code == "unknown_stream":
                self._end_unread(None if is_repeated else error, now)
                return
        self._num_errors += 1
        self._emit("error", code=error.code, message=error.message, param=error.param)
        if self._num_errors > MAX_ERRORS:
            self._end("too_many_errors", now)
            self._settle(now)

    def _end_unread(self, error: ClientError | None, now: float) -> None:
        """End a call whose stream is none that is read, with one error in all."""
        if error is not None:
            self._emit("error", code=error.code, message=error.message, param=error.param)
        self._end("unknown_stream", now)
        self._settle(now)

    def _emit(self, event: CallEventKind, **fields: object) -> None:
        self._seq += 1
        call_event = CallEvent(event=event, call=self.name, seq=self._seq, **fields)  # type: ignore[arg-type]
        self._effects.append(SendEvent(call_event))

    def _take(self) -> Sequence[CallEffect]:
        effects, self._effects = self._effects, []
        return effects


def _too_early() -> BadRequestError:
    return BadRequestError(
        "the call has not begun: `start` comes first", code="unexpected_event", param="event"
    )


def _given(value: T | None, name: str) -> T:
    if value is None:
        raise wrong(name, "is missing", code="invalid_frame")
    return value
