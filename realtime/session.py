"""One live session: a pure machine. Knows positions, not audio; `now`, not clocks.

`actors/live/session.py` drives it: events in (`realtime/events.py`), effects out (`realtime/effects.py`).
What is said when is the business of `realtime/channels.py`; what is answered, in sessions of type `realtime`,
of `realtime/dialogue/dialogue.py`; here are the client's wishes, limits and the end.

**Commits** are answered exactly once: by `committed` and later `completed` or `failed` of the new item, or
by an `error` that leaves the buffer as it is, if it holds less than 100 ms, or 1024 items wait.
A **flush** is a commit that is never refused, makes no item where there is nothing to transcribe, and in a
pause ends the turn where its silence would have ended it. It is answered by `flushed`, which names the item
it committed or null, behind that item's commit.

**Limits** of audio are kept by `realtime/admission.py`: an append over one is refused by an `error` event,
and the session goes on.

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
from typing import assert_never

import msgspec

from ..protocols.errors import BadRequestError, ClientError, SensoriumError, UnavailableError
from ..protocols.realtime.conversation_session import DialoguePatch, DialogueView
from ..protocols.realtime.events import (
    InputAudioBufferClear,
    InputAudioBufferCleared,
    InputAudioBufferCommit,
    InputAudioBufferFlush,
    InvalidEvent,
    SessionCreated,
    SessionUpdate,
    SessionUpdated,
)
from ..protocols.realtime.lifecycle import SessionExpiring
from ..protocols.realtime.session import SessionView
from .admission import Admission
from .channels import Channels
from .config import RealtimeModel, SessionConfig
from .conversation import Conversation
from .dialogue.dialogue import Dialogue
from .dialogue.effects import DialogueFact
from .dialogue.settings import audio_patch
from .dialogue.settings import merge as merge_dialogue
from .effects import Close, ConfigureAudio, ConfigureTranscription, Effect
from .events import (
    AudioAppended,
    AudioRefused,
    ClientRequest,
    ClientReturned,
    CutFound,
    DrainStarted,
    HypothesisFailed,
    HypothesisReady,
    SegmentsReady,
    SessionEvent,
    SpeechScored,
    StreamFailed,
)
from .lifetime import Lifetime, Notice
from .outgoing import Outgoing
from .settings import MULTICHANNEL, TURN_DETECTION, SessionSettings, initial_settings, merge
from .turns.partial_interval import Pace
from .views import session_view

__all__ = ["RealtimeModel", "Session", "SessionConfig"]


class Session:
    """receive / deadline / on_deadline / check, with `open` before them and `admit` beside them."""

    def __init__(
        self,
        config: SessionConfig,
        new_id: Callable[[str], str],
        *,
        resume_token: str | None = None,
        has_room: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`has_room`: whether so many more channels may be heard."""
        self.id = new_id("sess")
        self.resume_token = resume_token
        """What a client must show to resume; None where that is not offered."""
        self.settings: SessionSettings = initial_settings(config)
        """What is in force; only updates change it."""
        self.closed = False
        """A `Close` was given out: every further event is ignored."""
        self._config = config
        self._outgoing = Outgoing(new_id)
        self._has_room = has_room
        self._check_room(self.settings.num_channels)
        self._new_id = new_id
        self._channels = Channels(config, self.settings, self._outgoing, new_id)
        self.dialogue: Dialogue | None = None
        """What the session answers, if it does; to look at."""
        if config.dialogue is not None:
            self._begin_dialogue(Dialogue(config.dialogue, self._outgoing, new_id))
        self._admission = Admission(config, self._channels, self._outgoing)
        self._has_begun = False
        """Audio was admitted: it has as many channels from now on."""
        self._expires_at = 0
        self._lifetime = Lifetime(config)

    def open(self, *, now: float, created: int) -> list[Effect]:
        """Configure the actor and greet the client. `created` is the Unix time in seconds."""
        self._lifetime.open(now)
        self._expires_at = created + int(self._config.max_session_s)
        self._outgoing.do(ConfigureAudio(self.settings.format, self.num_channels))
        self._outgoing.do(self._transcription(self.settings))
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
        refusal = (
            _draining() if self._lifetime.refuses_audio else self._admission.refusal(num_bytes, self.settings)
        )
        if refusal is None:
            self._has_begun = True
            return None
        self._outgoing.refuse(refusal, event_id)
        return self._outgoing.take()

    def would_admit(self, num_bytes: int) -> bool:
        """Whether `admit` would take an append of so many bytes. Changes nothing."""
        if self.closed or self._lifetime.refuses_audio:
            return False
        return self._admission.refusal(num_bytes, self.settings) is None

    def admit_sound(self, num_samples: int, *, event_id: str | None = None) -> list[Effect] | None:
        """Ask before sound that came out of an admitted container is stored; answers as `admit` does."""
        if self.closed:
            return []
        refusal = self._admission.refusal_of(num_samples)
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
            case (
                AudioAppended()
                | SpeechScored()
                | CutFound()
                | HypothesisReady()
                | HypothesisFailed()
                | SegmentsReady()
                | StreamFailed()
            ):
                if isinstance(event, AudioAppended):
                    self._lifetime.sounded(now)
                # The rest of an append that came before the end of the last turn is not heard.
                if not (self._lifetime.refuses_audio and isinstance(event, AudioAppended | SpeechScored)):
                    self._channels.learn(event, now=now)
            case AudioRefused():
                self._outgoing.refuse(event.error, event.event_id)
            case ClientReturned():
                pass  # that was the news: the session is not idle
            case DrainStarted():
                self._warn(self._lifetime.drain(now))
                if self.dialogue is not None:
                    self.dialogue.is_draining = True
            case _ if isinstance(event, DialogueFact):
                if self.dialogue is not None:
                    self.dialogue.learn(event)
            case _:
                self._on_request(event, now)
        self._advance(now)
        return self._outgoing.take()

    @property
    def deadline(self) -> float:
        """When `on_deadline` has something to do."""
        if self.closed:
            return math.inf
        return min(self._lifetime.deadline, self._channels.deadline)

    def on_deadline(self, *, now: float) -> list[Effect]:
        """Warn of a limit of time, or close if one was reached; nothing if called early."""
        for notice in () if self.closed else self._lifetime.due(now):
            if notice.seconds_left > 0:
                self._warn(notice)
            else:
                self._expire(notice)
        if self._lifetime.draining or now >= self._channels.deadline:
            self._advance(now)
        return self._outgoing.take()

    @property
    def is_lagging(self) -> bool:
        """More than half of the backlog is used up."""
        return not self.closed and self._admission.is_lagging

    @property
    def pace(self) -> Pace:
        """How often partial hypotheses are asked for, to look at."""
        return self._channels.pace

    @property
    def conversation(self) -> Conversation:
        """Items and counters of the first channel, to look at."""
        return self._channels.first

    @property
    def num_channels(self) -> int:
        """That are heard apart."""
        return self.settings.num_channels

    @property
    def num_withheld(self) -> int:
        """Hypotheses that had new text and released none of it."""
        return self._channels.num_withheld

    def check(self) -> None:
        """Assert the invariants between inputs."""
        self._channels.check(is_closed=self.closed)
        if self.dialogue is not None:
            self.dialogue.check()
            assert not self.closed or self.dialogue.is_idle

    def _on_request(self, event: ClientRequest, now: float) -> None:
        """What the client asked for; a refusal changes nothing."""
        try:
            match event:
                case SessionUpdate():
                    self._update(event)
                case InputAudioBufferCommit():
                    self._commit()
                case InputAudioBufferFlush():
                    self._channels.flush()
                case InputAudioBufferClear():
                    self._channels.clear()
                    self._outgoing.send(InputAudioBufferCleared())
                case InvalidEvent():
                    raise BadRequestError(event.message, code=event.code, param=event.param)
                case _ if self.dialogue is not None:
                    self.dialogue.receive(event, self.settings.format, now=now)
                case _:
                    raise BadRequestError("the session only transcribes", code="unsupported_event")
        except ClientError as error:
            self._outgoing.refuse(error, event.event_id or None)

    def _begin_dialogue(self, dialogue: Dialogue) -> None:
        self.dialogue = dialogue
        self._outgoing.set_follower(dialogue.follow)
        self.conversation.make_place = dialogue.make_place
        dialogue.configure(dialogue.settings, self.settings.turn_detection)

    def _commit(self) -> None:
        if self.dialogue is None:
            self._channels.commit()
            return
        # Where nobody speaks no turn is ended: those before are answered as they would be.
        self.dialogue.is_committing = self.conversation.open is not None or not self.settings.turn_detection
        try:
            self._channels.commit()
        finally:
            self.dialogue.is_committing = False

    def _update(self, event: SessionUpdate) -> None:
        patch, dialogue = event.session, self.dialogue
        if isinstance(patch, DialoguePatch):
            assert dialogue is not None, "the codec knows which kind of session it reads for"
            settings = merge_dialogue(dialogue.settings, patch, dialogue.config)
            patch = audio_patch(patch)
            new = merge(self.settings, patch, self._config)
            dialogue.configure(settings, new.turn_detection)
        else:
            new = merge(self.settings, patch, self._config)
        self._change_channels(new)
        old, self.settings = self.settings, new
        if (new.format, new.num_channels) != (old.format, old.num_channels):
            self._outgoing.do(ConfigureAudio(new.format, new.num_channels))
        if self._transcription(new) != self._transcription(old):
            self._outgoing.do(self._transcription(new))
            self._channels.transcribe_with(new.options)
        self._outgoing.send(SessionUpdated(session=self.view()))
        self._channels.configure(new)

    def _transcription(self, settings: SessionSettings) -> ConfigureTranscription:
        own = settings.own_delay(self._config.delay)
        return ConfigureTranscription(settings.model, settings.options, None if own is None else own.delay_ms)

    def _change_channels(self, new: SessionSettings) -> None:
        """Raises ClientError where the session cannot hear as many, or not in another way any more."""
        changes_kind = (new.segmentation is None) != (self.settings.segmentation is None)
        if new.num_channels == self.num_channels and not changes_kind:
            return
        if self._has_begun and changes_kind:
            raise BadRequestError(
                f"`{TURN_DETECTION}.type` cannot change to or from `captions` after audio was received; "
                "begin another session",
                code="captions_are_fixed",
                param=f"{TURN_DETECTION}.type",
            )
        if self._has_begun:
            raise BadRequestError(
                f"the number of channels cannot change after audio was received; it is {self.num_channels}",
                code="channels_are_fixed",
                param=MULTICHANNEL,
            )
        self._check_room(new.num_channels - self.num_channels)
        self._channels = Channels(self._config, new, self._outgoing, self._new_id)
        self._admission = Admission(self._config, self._channels, self._outgoing)

    def _check_room(self, num_more: int) -> None:
        if num_more > 0 and not self._has_room(num_more):
            raise ClientError(
                "there is no room for so many channels: each takes the place of a session",
                code="too_many_sessions",
                param=MULTICHANNEL,
            )

    def _advance(self, now: float) -> None:
        """Everything that follows from the state, whichever event led to it."""
        if self.closed:
            return
        lifetime = self._lifetime
        is_receiving = lifetime.draining and not lifetime.refuses_audio
        if is_receiving and not (self._channels.is_in_turn and lifetime.may_receive_audio(now)):
            lifetime.stop_audio()
            self._channels.finish()
        self._channels.advance(now=now)
        if self.dialogue is not None:
            self.dialogue.advance()
        self._admission.warn()
        is_busy = self.dialogue is not None and not self.dialogue.is_idle
        if lifetime.refuses_audio and self._channels.num_tracked == 0 and not is_busy:
            self._close(_draining(), 1012)

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
        self._channels.end(error)
        if self.dialogue is not None:
            self.dialogue.close(error)
        self._outgoing.refuse(error)
        self._outgoing.do(Close(code, error.code))
        self.closed = True

    def view(self) -> SessionView | DialogueView:
        """The whole session as clients see it, without its secret."""
        return session_view(
            self.id,
            self._config,
            self.settings,
            None if self.dialogue is None else self.dialogue.settings,
            expires_at=self._expires_at,
            may_resume=self.resume_token is not None,
        )


def _draining() -> UnavailableError:
    return UnavailableError("the server is restarting", code="server_draining")
