"""One live session: the pure session machine, what it transcribes, and the line to its client, if any.

The driver runs the machine and performs its effects at once; each `Transcribe` is a task of its own
(`actors/live/turns.py`). Frames come from a line (`actors/live/line.py`) and go to it; every event is also
kept for a while (`realtime/replay.py`), so that a client whose socket was lost can go on where it was. A
session without a line answers what it was asked and then keeps nothing in the engine. Who may resume it, and
how long it waits, is the business of `actors/live/registry.py`. When it ends, everything is cancelled and
given back.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import uuid4

import trio

from ...protocols.audio import INTERNAL_RATE
from ...protocols.codec import encode_event
from ...protocols.errors import InternalError, NotFoundError, UnauthorizedError
from ...protocols.flat import FlatServerEvent
from ...protocols.realtime import Error, ErrorDetail, ServerEvent
from ...protocols.realtime_lifecycle import SessionResume, SessionResumed
from ...realtime.config import SessionConfig
from ...realtime.effects import (
    Close,
    ConfigureAudio,
    ConfigureTranscription,
    ForgetBefore,
    ForgetItem,
    ResetVoiceActivity,
    Send,
    Transcribe,
)
from ...realtime.events import ClientReturned, DrainStarted, HypothesisReady, SessionEvent
from ...realtime.pace import Pace
from ...realtime.replay import Replay
from ...realtime.session import Session
from ..callers import NOBODY, Caller
from ..kernel.actor import drive
from ..kernel.nursery import open_work
from ..speech.model import SpeechModel
from .audio import Hear, Input, ListeningMachine, LiveEffect, Then
from .hearing import OpenEar
from .intake import Intake
from .line import Line
from .meter import SessionMeter
from .outbox import SlowReaderError
from .turns import LiveTurns, Outcome

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
"""How long frames wait for a backlog to shrink."""


class SessionActor:
    """Serves one client until it leaves, a limit ends the session, or something breaks.

    `run` never raises for anything the client, the machine or a transcription does. Cancelling it drops
    the session. Without a `resume_token` the session does not outlive its line.
    """

    def __init__(
        self,
        config: SessionConfig,
        speech: Mapping[str, SpeechModel],
        open_ear: OpenEar,
        meter: SessionMeter,
        replay: Replay,
        *,
        resume_token: str | None = None,
        caller: Caller = NOBODY,
    ) -> None:
        session = Session(config, _new_id, resume_token=resume_token)
        self._machine = ListeningMachine(session)
        self._ear = open_ear()
        self.id = session.id
        """Public id of the session."""
        self.caller = caller
        """Who began it."""
        self.turns = LiveTurns(
            speech, config.model, self._machine.store.copy, self._hear_back, session_id=session.id
        )
        self._meter = meter
        self._replay = replay
        self._intake = Intake()
        self._work: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._stepped = trio.Event()
        self._is_patient = True
        self._last_seq = 0
        self._num_metered = 0
        self._num_withheld = 0
        self._is_draining = False
        self.line: Line | None = None
        """Where the client is."""
        self.closing: tuple[int, str] | None = None
        """Code and reason of the close, once the session has ended by itself."""
        self._is_dropped = False

    @property
    def can_resume(self) -> bool:
        """A client that loses its socket now may come back."""
        is_lost = self._is_dropped or not self._replay.intact
        return not is_lost and self._machine.dialect.resume_token is not None

    @property
    def pace(self) -> Pace:
        """How often the session asks for partial hypotheses."""
        return self._machine.session.pace

    @property
    def num_events(self) -> int:
        """Client events that were taken in."""
        return self._intake.num_events

    async def run(self) -> None:
        """Serve the session to its end."""
        try:
            with self._scope:
                await self._converse()
        except SlowReaderError as error:
            # Whose client it was does not matter any more: the machine has been left half-way.
            logger.info("session %s: %s; closed", self.id, error)
            self._close(1008, "the client reads too slowly", drop=True)
            self._is_dropped = True
        except Exception:
            logger.exception("session %s failed; it was closed, the others go on", self.id)
            self._fail()
        finally:
            self.turns.close()
            self._intake.inputs.close()
            self._stepped.set()

    async def drain(self) -> None:
        """Finish what was said, then close; the client is told."""
        if not self._is_draining:
            self._is_draining = True
            await self._tell(DrainStarted())

    def end(self) -> None:
        """Nobody wants the session any more: drop it."""
        self._is_dropped = True
        self._scope.cancel()

    def give_up(self, line: Line, error: SlowReaderError) -> None:
        """The client of `line` does not read: end the session, if it is still its client."""
        if self.line is line:
            logger.info("session %s: %s; closed", self.id, error)
            self._close(1008, "the client reads too slowly", drop=True)
            self.end()
        else:
            line.outbox.close(1008, "the client reads too slowly", drop=True)

    def attach(self, line: Line) -> None:
        """The first line, before `run`."""
        self.line = line

    def detach(self) -> None:
        """The line has ended; events wait, and the engine keeps nothing for turns nobody goes on with."""
        self.line = None
        self._replay.detach()
        self.turns.park()

    async def resume(self, wish: SessionResume, line: Line) -> None:
        """Go on with the client on `line`; another line, where there still is one, is closed.

        Raises ClientError and changes nothing if the token is wrong, or if events are missing.
        """
        async with self._intake.lock:
            token = self._machine.dialect.resume_token
            left_again = line.outbox.close_code is not None
            if left_again or self._is_dropped or token is None:
                raise no_such_session()
            if not hmac.compare_digest(token.encode(), wish.token.encode()):
                raise UnauthorizedError(
                    "`token` is not the session's `resume_token`", code="invalid_resume_token", param="token"
                )
            frames = self._replay.resume(wish.after_seq)
            resumed = SessionResumed(
                event_id=_new_id("event"),
                session=self._machine.session.view(),
                after_seq=wish.after_seq,
                last_seq=self._replay.last_seq,
                received_events=self.num_events,
                received_audio_bytes=self._intake.num_audio_bytes,
            )
            # Nothing below waits: no event may come between.
            old, self.line, line.session = self.line, line, self
            if old is not None:
                old.outbox.close(1008, "the session was resumed on another connection", drop=True)
            try:
                for frame in (encode_event(resumed), *frames):
                    line.outbox.put(frame)
            except SlowReaderError as error:
                self.give_up(line, error)
            if self.closing is not None:
                line.outbox.close(*self.closing)
            self.turns.unpark()

    async def returned(self) -> None:
        """After `resume`: the client is there again, and the session not idle."""
        await self._tell(ClientReturned())

    async def take(self, frame: str | bytes, line: Line) -> SessionResume | None:
        """Take in one frame of `line`, unless the session has gone to another one, or has ended.

        A client's first event may be the wish to go on with another session; that one is returned. Cancelling
        takes the frame whole or not at all.
        """
        lock = self._intake.lock
        try:
            lock.acquire_nowait()  # almost always, and it saves the task a turn of the loop
        except trio.WouldBlock:
            await lock.acquire()
        try:
            return None if self.line is not line else await self._intake.take(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        finally:
            lock.release()

    @property
    def is_ahead(self) -> bool:
        """Its client should wait (`keep_pace`) before more is taken."""
        if self._machine.dialect.knows_backpressure:
            return False
        return self._intake.num_waiting > 0 or self._machine.session.is_behind

    async def keep_pace(self) -> None:
        """Let a client of the flat dialect, which pushes files at full speed, wait for the transcription.

        It knows no backpressure but the socket's, and an append that is refused ends it. If nothing gets
        better for `_PATIENCE_S`, something is wrong, and refusing says so.
        """
        if not self.is_ahead:
            self._is_patient = True
            return
        with trio.move_on_after(_PATIENCE_S if self._is_patient else 0.0):
            while self.is_ahead:
                self._stepped = trio.Event()
                await self._stepped.wait()
        self._is_patient = self._is_patient and not self.is_ahead

    async def _converse(self) -> None:
        now = trio.current_time()
        for effect in self._machine.session.open(now=now, created=int(time.time())):
            await self._perform(effect)
        async with open_work() as work:
            self._work = work
            with self._intake.inputs:  # else an outcome that finds no room would wait for ever, and we for it
                await drive(self._machine, self._next_event, self._perform)
            work.cancel_scope.cancel()

    async def _next_event(self) -> Input:
        num_heard = self._machine.num_samples_received
        self._meter.heard((num_heard - self._num_metered) / INTERNAL_RATE)
        self._num_metered = num_heard
        num_withheld = self._machine.session.conversation.num_withheld
        self._meter.withheld(num_withheld - self._num_withheld)
        self._num_withheld = num_withheld
        self._stepped.set()
        if self._machine.session.closed:
            raise trio.EndOfChannel
        return await self._intake.inputs.receive()

    async def _perform(self, effect: LiveEffect) -> None:
        match effect:
            case Hear() | Then():
                await self._go_on(effect)
            case Send(event, instead):
                self._send(event, instead)
            case Transcribe():
                assert self._work is not None
                self.turns.start(effect, self._work)
            case ForgetBefore(sample):
                self._machine.store.forget_before(sample)
            case ForgetItem(item_id):
                self.turns.forget(item_id)
            case ConfigureAudio(audio_format):
                for follow_up in self._machine.configure(audio_format, now=trio.current_time()):
                    await self._perform(follow_up)
            case ConfigureTranscription(model, options):
                self.turns.configure(model, options)
            case ResetVoiceActivity():
                self._ear.reset()
            case Close(code, reason):
                self._close(code, reason)

    async def _go_on(self, effect: Hear | Then) -> None:
        """Events wait meanwhile, so the session finds its audio and what the client did in their order."""
        follow_ups: Sequence[LiveEffect]
        if isinstance(effect, Hear):
            scores = await self._ear.hear(effect.samples)
            follow_ups = self._machine.heard(scores, now=trio.current_time())
        else:
            follow_ups = self._machine.proceed(effect, now=trio.current_time())
        for follow_up in follow_ups:
            await self._perform(follow_up)

    def _send(self, event: ServerEvent, instead: tuple[FlatServerEvent, ...] | None) -> None:
        self._last_seq = event.server_event_seq
        self._meter.sent(event, now=trio.current_time())
        frames = [encode_event(told) for told in ((event,) if instead is None else instead)]
        if instead is None:
            self._replay.record(frames[0])
        if self.line is not None:
            for frame in frames:
                self.line.outbox.put(frame)
        elif not self._replay.intact:
            logger.info("session %s: more was said than is kept for a lost client; ended", self.id)
            self.end()

    def _close(self, code: int, reason: str, *, drop: bool = False) -> None:
        self.closing = self.closing or (code, reason)
        if self.line is not None:
            self.line.outbox.close(code, reason, drop=drop)

    async def _hear_back(self, outcome: Outcome) -> None:
        if isinstance(outcome, HypothesisReady):
            lag = max(0, self._machine.num_samples_received - outcome.end_sample)
            self._meter.hypothesis(lag / INTERNAL_RATE)
        await self._tell(outcome)

    async def _tell(self, event: SessionEvent) -> None:
        try:
            await self._intake.put(event)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the session is ending; nobody waits for this any more

    def _fail(self) -> None:
        """The session's own code broke: say so, then close."""
        error = Error(
            event_id=_new_id("event"),
            server_event_seq=self._last_seq + 1,
            error=ErrorDetail(
                type=InternalError.type, code=InternalError.default_code, message="the session failed"
            ),
        )
        try:
            self._send(error, self._machine.dialect.words(error))
        except SlowReaderError:
            self._close(1011, "the session failed", drop=True)
        self._close(1011, "the session failed")


def no_such_session() -> NotFoundError:
    """For a session that never was, has ended, or cannot be resumed."""
    return NotFoundError(
        "there is no such session to resume (any more)", code="session_not_found", param="session_id"
    )


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex[:24]}"
