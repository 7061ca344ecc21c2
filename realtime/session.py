"""One live transcription session: a pure machine. Knows positions, not audio; `now`, not clocks.

`actors/live/session.py` drives it: events in (`realtime/events.py`), effects out (`realtime/effects.py`).
What is said when is the business of `realtime/listener.py`; here are the client's wishes, limits and the end.

**Commits** are answered exactly once: by `committed` and later `completed` or `failed` of the new item, or
by an `error` that leaves the buffer as it is, if it holds less than 100 ms, or 1024 items wait.
A **flush** is a commit that is never refused, makes no item where there is nothing to transcribe, and in a
pause ends the turn where its silence would have ended it. It is answered by `flushed`, which names the item
it committed or null, behind that item's commit.

**Limits.** Over `max_append_bytes`, or `max_backlog_ms` of received audio that may hold speech and that no
hypothesis covers, an append is refused by an `error` event and the session goes on; at half that backlog
`input_audio_buffer.backpressure` is sent, and again only after it fell below a quarter. A turn of
`force_turn_s` is ended (detection on), one of `max_turn_s` takes no more audio (off; silence slides out).

**Ends.** `max_session_s`, and `idle_s` without any event, close with 1008; draining finishes the open turn,
refuses audio, and closes with 1012 once all is answered (or after `drain_s`). Each is announced by a
`session.expiring` event (`realtime/lifetime.py`). Before the close, committed items without an answer get
`failed`, then an `error` says why. An engine that dies ends no session: the turns it was asked about get
`failed`, and it is asked again for the next ones.

A lost socket is none of its business: time goes on, and what it sends is kept (`realtime/replay.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, assert_never

import msgspec

from ..protocols.audio import INTERNAL_RATE, ms_to_samples, samples_to_ms
from ..protocols.errors import BadRequestError, ClientError, SensoriumError, TooLargeError, UnavailableError
from ..protocols.realtime import (
    InputAudioBufferBackpressure,
    InputAudioBufferClear,
    InputAudioBufferCleared,
    InputAudioBufferCommit,
    InputAudioBufferFlush,
    InputAudioBufferFlushed,
    InvalidEvent,
    SessionCreated,
    SessionExpiring,
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
    ClientReturned,
    CutFound,
    DrainStarted,
    HypothesisFailed,
    HypothesisReady,
    SessionEvent,
    SpeechScored,
)
from .lifetime import Lifetime, Notice
from .listener import Listener
from .outgoing import Outgoing
from .pace import Pace
from .settings import SessionSettings, initial_settings, merge
from .transcript import RELEASES

__all__ = ["CAPABILITIES", "RealtimeModel", "Session", "SessionConfig"]

CAPABILITIES: Final = (
    "binary_audio",
    "input_audio_buffer.backpressure",
    "input_audio_buffer.flush",
    "pcm_rates",
    "pre_commit_deltas",
    "server_event_seq",
    "session.expiring",
    "timestamp_granularities",
)
"""Extensions of OpenAI's dialect, as `session.capabilities` lists them; `session.resume` joins them where
the session waits for a client whose socket was lost."""

ClientWish = (
    SessionUpdate | InputAudioBufferCommit | InputAudioBufferFlush | InputAudioBufferClear | InvalidEvent
)


class Session:
    """receive / deadline / on_deadline / check, with `open` before them and `admit` beside them."""

    def __init__(
        self, config: SessionConfig, new_id: Callable[[str], str], *, resume_token: str | None = None
    ) -> None:
        self.id = new_id("sess")
        self.resume_token = resume_token
        """What a client must show to resume; None where that is not offered."""
        self.settings: SessionSettings = initial_settings(config)
        """What is in force; only updates change it."""
        self.closed = False
        """A `Close` was given out: every further event is ignored."""
        self._config = config
        self._outgoing = Outgoing(new_id)
        self.conversation = Conversation(
            self._outgoing,
            new_id,
            release=RELEASES[self.settings.delay],
            max_finals_in_flight=config.max_finals_in_flight,
        )
        """Items and counters, to look at."""
        self.conversation.options = self.settings.options
        self._listener = Listener(config, self.settings, self.conversation, self._outgoing)
        self._max_backlog = ms_to_samples(config.max_backlog_ms)
        self._max_turn = ms_to_samples(config.max_turn_s * 1000)
        self._warned = False
        self._turn_warned = False
        self._expires_at = 0
        self._lifetime = Lifetime(config)

    def open(self, *, now: float, created: int) -> list[Effect]:
        """Configure the actor and greet the client. `created` is the Unix time in seconds."""
        self._lifetime.open(now)
        self._expires_at = created + int(self._config.max_session_s)
        self._outgoing.do(ConfigureAudio(self.settings.format))
        self._outgoing.do(ConfigureTranscription(self.settings.model, self.settings.options))
        view = self.view()
        if self.resume_token is not None:
            view = msgspec.structs.replace(view, resume_token=self.resume_token)
        self._outgoing.send(SessionCreated(session=view, id=self.id, created=created))
        return self._outgoing.take()

    def admit(self, num_bytes: int, *, event_id: str | None = None) -> list[Effect] | None:
        """Ask before an append is decoded and stored. None: store it, then report `AudioAppended`.

        Otherwise the append is refused: nothing is stored, the returned effects are performed.
        """
        if self.closed:
            return []
        refusal = self._refusal(num_bytes)
        if refusal is None:
            return None
        self._outgoing.refuse(refusal, event_id)
        return self._outgoing.take()

    def receive(self, event: SessionEvent, *, now: float) -> list[Effect]:
        """React to one event. Never raises, whatever a client sent."""
        if self.closed:
            return []
        self._lifetime.touch(now)
        match event:
            case AudioAppended() | SpeechScored() if self._lifetime.draining:
                pass  # the rest of an append that was admitted before
            case AudioAppended():
                self._listener.append(event.num_samples)
            case SpeechScored():
                self._listener.score(event.end_sample, event.probability)
            case CutFound():
                self._listener.cut(event.sample, now=now)
            case HypothesisReady():
                if not event.final:
                    self._listener.pace.answered(event.item_id, now=now)
                self.conversation.on_ready(event)
            case HypothesisFailed():
                self.conversation.on_failed(event)
            case AudioRefused():
                self._outgoing.refuse(event.error, event.event_id)
            case ClientReturned():
                pass  # that was the news: the session is not idle
            case DrainStarted():
                self._warn(self._lifetime.drain(now))
                self._listener.finish()
            case _:
                self._on_wish(event)
        self._advance(now)
        return self._outgoing.take()

    @property
    def deadline(self) -> float:
        """When `on_deadline` has something to do."""
        if self.closed:
            return math.inf
        return self._lifetime.deadline

    def on_deadline(self, *, now: float) -> list[Effect]:
        """Warn of a limit of time, or close if one was reached; nothing if called early."""
        for notice in () if self.closed else self._lifetime.due(now):
            if notice.seconds_left > 0:
                self._warn(notice)
            else:
                self._expire(notice)
        return self._outgoing.take()

    @property
    def is_behind(self) -> bool:
        """More than half of the backlog is used up."""
        return not self.closed and self._listener.backlog > self._max_backlog // 2

    @property
    def pace(self) -> Pace:
        """How often partial hypotheses are asked for, to look at."""
        return self._listener.pace

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
                case InputAudioBufferFlush():
                    self._outgoing.send(InputAudioBufferFlushed(item_id=self._listener.flush()))
                case InputAudioBufferClear():
                    self._listener.clear()
                    self._outgoing.send(InputAudioBufferCleared())
                case InvalidEvent():
                    raise BadRequestError(event.message, code=event.code, param=event.param)
                case _:
                    assert_never(event)
        except BadRequestError as error:
            self._outgoing.refuse(error, event.event_id or None)

    def _update(self, event: SessionUpdate) -> None:
        old, new = self.settings, merge(self.settings, event.session, self._config)
        self.settings = new
        if new.format != old.format:
            self._outgoing.do(ConfigureAudio(new.format))
        if (new.model, new.options) != (old.model, old.options):
            self._outgoing.do(ConfigureTranscription(new.model, new.options))
            self.conversation.options = new.options
        self._outgoing.send(SessionUpdated(session=self.view()))
        self._listener.configure(new)

    def _advance(self, now: float) -> None:
        """Everything that follows from the state, whichever event led to it."""
        if self.closed:
            return
        self._listener.advance(now=now)
        backlog, unended = self._listener.backlog, self._listener.unended
        self._warned = self._press(self._warned, backlog, self._max_backlog // 2, self._max_backlog)
        self._turn_warned = self._press(self._turn_warned, unended, self._max_turn * 9 // 10, self._max_turn)
        if self._lifetime.draining and self.conversation.num_tracked == 0:
            self._close(_draining(), 1012)

    def _press(self, warned: bool, used: int, at: int, limit: int) -> bool:
        """Warn once when `used` of `limit` samples reach `at`, and again only after it fell to half of that.

        Gives whether the client is warned now.
        """
        if warned:
            return used > at // 2
        if used == 0 or used < at:
            return False
        self._outgoing.send(
            InputAudioBufferBackpressure(buffered_ms=samples_to_ms(used), limit_ms=samples_to_ms(limit))
        )
        return True

    def _refusal(self, num_bytes: int) -> SensoriumError | None:
        """Why an append of `num_bytes` cannot be taken."""
        config = self._config
        if self._lifetime.draining:
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

    def _warn(self, notice: Notice | None) -> None:
        if notice is not None:
            self._outgoing.send(
                SessionExpiring(reason=notice.reason, seconds_left=round(notice.seconds_left, 3))
            )

    def _expire(self, notice: Notice) -> None:
        match notice.reason:
            case "server_draining":
                self._close(_draining(), 1012)
            case "session_expired":
                limit = f"the session reached its limit of {self._config.max_session_s:g} s"
                self._close(ClientError(limit, code=notice.reason), 1008)
            case "session_idle":
                limit = f"nothing happened for {self._config.idle_s:g} s"
                self._close(ClientError(limit, code=notice.reason), 1008)
            case _:
                assert_never(notice.reason)

    def _close(self, error: SensoriumError, code: int) -> None:
        """Fail what is pending, say why, and close."""
        self.conversation.fail_pending(error)
        self.conversation.discard()
        self._outgoing.refuse(error)
        self._outgoing.do(Close(code, error.code))
        self.closed = True

    def view(self) -> SessionView:
        """The whole session as clients see it, without its secret."""
        config = self._config
        resume = () if self.resume_token is None else ("session.resume",)
        return SessionView(
            id=self.id,
            expires_at=self._expires_at,
            audio=self.settings.audio_view(),
            include=self.settings.include_view(),
            limits=LimitsView(
                max_append_bytes=config.max_append_bytes,
                max_backlog_ms=config.max_backlog_ms,
                max_turn_s=config.max_turn_s,
                force_turn_s=min(config.force_turn_s, config.max_turn_s),
                max_session_s=config.max_session_s,
                idle_s=config.idle_s,
                resume_grace_s=0.0 if self.resume_token is None else config.resume_grace_s,
            ),
            capabilities=sorted((*CAPABILITIES, *resume)),
        )


def _draining() -> UnavailableError:
    return UnavailableError("the server is restarting", code="server_draining")
