"""One live transcription session: a pure machine. Knows positions, not audio; `now`, not clocks.

`actors/session.py` drives it: events in (`realtime/events.py`), effects out (`realtime/effects.py`). What
is said when is the business of `realtime/listener.py`; here are the client's wishes, limits and the end.

**Commits** are answered exactly once: by `committed` and later `completed` or `failed` of the new item, or
by an `error` that leaves the buffer as it is, if it holds less than 100 ms.

**Limits.** Over `max_append_bytes`, or `max_backlog_ms` of received audio that may hold speech and that no
hypothesis covers, an append is refused by an `error` event and the session goes on; at half that backlog
`input_audio_buffer.backpressure` is sent, and again only after it fell below a quarter. A turn of
`max_turn_s` is ended (detection on) or takes no more audio (off; silence slides out instead).

**Ends.** `max_session_s`, and `idle_s` without any event, close with 1008; draining finishes the open turn,
refuses audio, and closes with 1012 once all is answered (or after `drain_s`). Before the close, committed
items without an answer get `failed`, then an `error` says why. An engine that dies ends no session: the
turns it was asked about get `failed`, and it is asked again for the next ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, assert_never

from ..protocols.audio import INTERNAL_RATE, ms_to_samples, samples_to_ms
from ..protocols.errors import BadRequestError, ClientError, SensoriumError, TooLargeError, UnavailableError
from ..protocols.realtime import (
    InputAudioBufferBackpressure,
    InputAudioBufferClear,
    InputAudioBufferCleared,
    InputAudioBufferCommit,
    InvalidEvent,
    SessionCreated,
    SessionUpdate,
    SessionUpdated,
)
from ..protocols.realtime_session import LimitsView, SessionView
from .config import RealtimeModel, SessionConfig
from .conversation import Conversation
from .effects import Close, ConfigureAudio, ConfigureTranscription, Effect
from .events import (
    AudioAppended,
    AudioRefused,
    DrainStarted,
    HypothesisFailed,
    HypothesisReady,
    SessionEvent,
    SpeechScored,
)
from .listener import Listener
from .outbox import Outbox
from .settings import SessionSettings, initial_settings, merge

__all__ = ["CAPABILITIES", "RealtimeModel", "Session", "SessionConfig"]

CAPABILITIES: Final = (
    "binary_audio",
    "input_audio_buffer.backpressure",
    "pcm_rates",
    "pre_commit_deltas",
    "server_event_seq",
    "timestamp_granularities",
)
"""Extensions of OpenAI's dialect, as `session.capabilities` lists them."""

ClientWish = SessionUpdate | InputAudioBufferCommit | InputAudioBufferClear | InvalidEvent


class Session:
    """receive / deadline / on_deadline / check, with `open` before them and `admit` beside them."""

    def __init__(self, config: SessionConfig, new_id: Callable[[str], str]) -> None:
        self.id = new_id("sess")
        self.settings: SessionSettings = initial_settings(config)
        """What is in force; only updates change it."""
        self.closed = False
        """A `Close` was given out: every further event is ignored."""
        self._config = config
        self._outbox = Outbox(new_id)
        self.conversation = Conversation(
            self._outbox,
            new_id,
            hold_words=config.hold_words,
            max_finals_in_flight=config.max_finals_in_flight,
        )
        """Items and counters, to look at."""
        self._listener = Listener(config, self.settings, self.conversation, self._outbox)
        self._max_backlog = ms_to_samples(config.max_backlog_ms)
        self._warned = False
        self._expires_at = 0
        self._session_end = math.inf
        self._idle_end = math.inf
        self._drain_end = math.inf

    def open(self, *, now: float, created: int) -> list[Effect]:
        """Configure the actor and greet the client. `created` is the Unix time in seconds."""
        self._session_end = now + self._config.max_session_s
        self._idle_end = now + self._config.idle_s
        self._expires_at = created + int(self._config.max_session_s)
        self._outbox.do(ConfigureAudio(self.settings.format))
        self._outbox.do(ConfigureTranscription(self.settings.model, self.settings.options))
        self._outbox.send(SessionCreated(session=self._view(), id=self.id, created=created))
        return self._outbox.take()

    def admit(self, num_bytes: int, *, event_id: str | None = None) -> list[Effect] | None:
        """Ask before an append is decoded and stored. None: store it, then report `AudioAppended`.

        Otherwise the append is refused: nothing is stored, the returned effects are performed.
        """
        if self.closed:
            return []
        refusal = self._refusal(num_bytes)
        if refusal is None:
            return None
        self._outbox.refuse(refusal, event_id)
        return self._outbox.take()

    def receive(self, event: SessionEvent, *, now: float) -> list[Effect]:
        """React to one event. Never raises, whatever a client sent."""
        if self.closed:
            return []
        self._idle_end = now + self._config.idle_s
        match event:
            case AudioAppended():
                self._listener.append(event.num_samples)
            case SpeechScored():
                self._listener.score(event.end_sample, event.probability)
            case HypothesisReady():
                self.conversation.on_ready(event)
            case HypothesisFailed():
                self.conversation.on_failed(event)
            case AudioRefused():
                self._outbox.refuse(event.error, event.event_id)
            case DrainStarted():
                self._drain_end = min(self._drain_end, now + self._config.drain_s)
                self._listener.finish()
            case _:
                self._on_wish(event)
        self._advance()
        return self._outbox.take()

    @property
    def deadline(self) -> float:
        """When `on_deadline` has something to do."""
        if self.closed:
            return math.inf
        return min(self._session_end, self._idle_end, self._drain_end)

    def on_deadline(self, *, now: float) -> list[Effect]:
        """Close if a limit of time was reached; nothing if called early."""
        if now < self.deadline:
            return []
        if now >= self._drain_end:
            self._close(_draining(), 1012)
        elif now >= self._session_end:
            limit = f"the session reached its limit of {self._config.max_session_s:g} s"
            self._close(ClientError(limit, code="session_expired"), 1008)
        else:
            limit = f"nothing happened for {self._config.idle_s:g} s"
            self._close(ClientError(limit, code="session_idle"), 1008)
        return self._outbox.take()

    def check(self) -> None:
        """Assert the invariants between inputs."""
        self.conversation.check()
        if self.closed:
            assert self.conversation.num_tracked == 0
        else:
            self._listener.check()

    def _on_wish(self, event: ClientWish) -> None:
        """What the client asked for; a refusal changes nothing."""
        try:
            match event:
                case SessionUpdate():
                    self._update(event)
                case InputAudioBufferCommit():
                    self._listener.commit()
                case InputAudioBufferClear():
                    self._listener.clear()
                    self._outbox.send(InputAudioBufferCleared())
                case InvalidEvent():
                    raise BadRequestError(event.message, code=event.code, param=event.param)
                case _:
                    assert_never(event)
        except BadRequestError as error:
            self._outbox.refuse(error, event.event_id or None)

    def _update(self, event: SessionUpdate) -> None:
        old, new = self.settings, merge(self.settings, event.session, self._config)
        self.settings = new
        if new.format != old.format:
            self._outbox.do(ConfigureAudio(new.format))
        if (new.model, new.options) != (old.model, old.options):
            self._outbox.do(ConfigureTranscription(new.model, new.options))
            self.conversation.options = new.options
        self._outbox.send(SessionUpdated(session=self._view()))
        self._listener.configure(new)

    def _advance(self) -> None:
        """Everything that follows from the state, whichever event led to it."""
        if self.closed:
            return
        self._listener.advance()
        backlog = self._listener.backlog
        if self._warned:
            self._warned = backlog > self._max_backlog // 4
        elif backlog > 0 and backlog >= self._max_backlog // 2:
            self._warned = True
            self._outbox.send(
                InputAudioBufferBackpressure(
                    buffered_ms=samples_to_ms(backlog), limit_ms=self._config.max_backlog_ms
                )
            )
        if self._drain_end < math.inf and self.conversation.num_tracked == 0:
            self._close(_draining(), 1012)

    def _refusal(self, num_bytes: int) -> SensoriumError | None:
        """Why an append of `num_bytes` cannot be taken."""
        config = self._config
        if self._drain_end < math.inf:
            return _draining()
        if num_bytes > config.max_append_bytes:
            return TooLargeError(
                f"`audio` is {num_bytes} bytes; the limit is {config.max_append_bytes}", param="audio"
            )
        num_samples = num_bytes * INTERNAL_RATE // self.settings.format.bytes_per_second
        backlog = self._listener.backlog + num_samples
        if backlog > self._max_backlog:
            return ClientError(
                f"{samples_to_ms(backlog)} ms of audio would be waiting; the limit is "
                f"{config.max_backlog_ms} ms: send no faster than real time",
                code="input_audio_buffer_overflow",
                param="audio",
            )
        if not self._listener.has_room(num_samples):
            return ClientError(
                f"the turn would be longer than {config.max_turn_s:g} s; commit or clear it first",
                code="input_audio_buffer_overflow",
                param="audio",
            )
        return None

    def _close(self, error: SensoriumError, code: int) -> None:
        """Fail what is pending, say why, and close."""
        self.conversation.fail_pending(error)
        self.conversation.discard()
        self._outbox.refuse(error)
        self._outbox.do(Close(code, error.code))
        self.closed = True

    def _view(self) -> SessionView:
        config = self._config
        return SessionView(
            id=self.id,
            expires_at=self._expires_at,
            audio=self.settings.audio_view(),
            include=self.settings.include_view(),
            limits=LimitsView(
                max_append_bytes=config.max_append_bytes,
                max_backlog_ms=config.max_backlog_ms,
                max_turn_s=config.max_turn_s,
                max_session_s=config.max_session_s,
                idle_s=config.idle_s,
            ),
            capabilities=list(CAPABILITIES),
        )


def _draining() -> UnavailableError:
    return UnavailableError("the server is restarting", code="server_draining")
