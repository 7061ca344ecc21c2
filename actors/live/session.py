"""One live session: the pure session machine, what it transcribes, and the line to its client, if any.

The driver runs the machine and performs its effects at once; each `Transcribe` is a task of its own
(`actors/live/turns.py`), and so is each `Respond` (`actors/live/responses.py`). Frames come from a line
(`actors/live/connection.py`); what is said goes to it, and is kept for a client whose socket was lost
(`actors/live/outbound.py`). A session without a line answers what it was asked and
then keeps nothing in the engine. Who may resume it, and how long it waits, is the business of
`actors/live/registry.py`. When it ends, everything is cancelled and given back.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol
from uuid import uuid4

import trio

from ...protocols.errors import NotFoundError, SensoriumError, UnauthorizedError
from ...protocols.realtime.events import ServerEvent
from ...protocols.realtime.lifecycle import SessionResume, SessionResumed
from ...protocols.realtime.vllm_events import FlatControl, FlatServerEvent
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...realtime.config import SessionConfig
from ...realtime.dialogue.effects import DialogueEffect
from ...realtime.effects import (
    Close,
    ConfigureAudio,
    ConfigureTranscription,
    ContinueStream,
    EndStream,
    ForgetBefore,
    ForgetItem,
    ResetVoiceActivity,
    Send,
    Transcribe,
)
from ...realtime.events import ClientReturned, DrainStarted, HypothesisReady, SegmentsReady, SessionEvent
from ...realtime.replay import Replay
from ...realtime.session import Session
from ...realtime.turns.arrival import Arrival
from ...realtime.turns.partial_interval import Pace
from ..callers import ANONYMOUS, Caller
from ..runtime.actor import drive
from ..runtime.nursery import open_work
from ..runtime.panic_guard import contained
from ..speech.model import SpeechModel
from .audio import AudioBatch, Decode, Detect, EndSound, ListeningMachine, LiveEffect, Then, slices
from .captions import LiveCaptions
from .container_decoder import OpenSound
from .inbound import Intake
from .outbound import TOO_SLOW, Carrier, Delivery
from .outbox import SlowReaderError
from .responses import OpenAnswers
from .session_metrics import SessionMeter
from .turns import LiveTurns
from .vad_streams import VadStreams
from .voice_activity import OpenVadStream

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
"""How long frames wait for a backlog to shrink."""


class SessionLine(Carrier, Protocol):
    """The line to a client, and whose session it carries."""

    session: SessionActor | None


class SessionActor:
    """Serves one client until it leaves, a limit ends the session, or something breaks.

    `run` never raises for anything the client, the machine or a transcription does. Cancelling it drops
    the session. Without a `resume_token` the session does not outlive its line.
    """

    def __init__(
        self,
        config: SessionConfig,
        speech: Mapping[str, SpeechModel],
        open_vad_stream: OpenVadStream,
        open_sound: OpenSound,
        meter: SessionMeter,
        replay: Replay,
        *,
        open_answers: OpenAnswers | None = None,
        resume_token: str | None = None,
        tag: str = "",
        caller: Caller = ANONYMOUS,
        shares_as: str = "",
        has_room: Callable[[int], bool] = lambda _: True,
    ) -> None:
        """`tag` begins the session's id; `open_answers` is for a session that answers, as its `config` says;
        `shares_as` is the `Lane.caller` of what it hears; `has_room` tells whether so many more channels may
        be heard apart, all of a new session's included."""

        def new_id(prefix: str) -> str:
            return _new_id(prefix, tag if prefix == "sess" else "")

        session = Session(config, new_id, resume_token=resume_token, has_room=has_room)
        self._machine = ListeningMachine(session)
        self._vad_streams = VadStreams(open_vad_stream, open_sound, session.num_channels, caller=shares_as)
        self._arrival = Arrival()
        self.id = session.id
        """Public id of the session."""
        self.caller = caller
        """Who began it."""
        self._intake = Intake(answers=config.dialogue is not None)
        notify = (
            self._intake.put_if_open
        )  # none of our own methods: a cycle would be left to the garbage collector
        self.turns = LiveTurns(speech, config.model, notify, session_id=session.id, caller=shares_as)
        self.captions = LiveCaptions(speech, config.model, notify, session_id=session.id, caller=shares_as)
        self._meter = meter
        self.delivery = Delivery(session.id, replay, meter, _new_id)
        """What is said, and where the client is."""
        self.answers = None if open_answers is None else open_answers(notify, session_id=session.id)
        """Those being made."""
        self._work: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._stepped = trio.Event()
        self._is_patient = True
        self._num_metered = 0
        self._num_withheld = 0
        self._is_draining = False
        self._is_dropped = False

    @property
    def can_resume(self) -> bool:
        """A client that loses its socket now may come back."""
        is_lost = self._is_dropped or self.delivery.is_lost
        return not is_lost and self._machine.dialect.resume_token is not None

    @property
    def num_channels(self) -> int:
        """That are heard apart: the places it takes."""
        return self._machine.session.num_channels

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
            with contained, self._scope:
                await self._converse()
        except SlowReaderError as error:
            # Whose client it was does not matter any more: the machine has been left half-way.
            self.delivery.give_up(error)
            self._is_dropped = True
        except Exception:
            logger.exception("session %s failed; it was closed, the others go on", self.id)
            self.delivery.fail(self._machine.dialect.words)
        finally:
            self.turns.close()
            self.captions.close()
            if self.answers is not None:
                self.answers.close()
            self._intake.inputs.close()
            self._vad_streams.close()
            self._stepped.set()

    def drain(self) -> None:
        """Finish what was said, then close; the client is told."""
        if not self._is_draining:
            self._is_draining = True
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # it has ended
                self._intake.put_at_once(DrainStarted())

    def end(self) -> None:
        """Nobody wants the session any more: drop it."""
        self._is_dropped = True
        self._scope.cancel()

    def give_up(self, line: SessionLine, error: SlowReaderError) -> None:
        """The client of `line` does not read: end the session, if it is still its client."""
        if self.delivery.line is line:
            self.delivery.give_up(error)
            self.end()
        else:
            line.outbox.close(1008, TOO_SLOW, drop=True)

    def detach(self) -> None:
        """The line has ended; events wait, and the engine keeps nothing for turns nobody goes on with."""
        self.delivery.detach()
        self.turns.park()
        self.captions.park()
        if self.answers is not None:
            self.answers.park()

    async def resume(self, resumption: SessionResume, line: SessionLine) -> None:
        """Go on with the client on `line`; another line, where there still is one, is closed.

        Raises ClientError and changes nothing if the token is wrong, or if events are missing.
        """
        self._check_resume(resumption, line)
        self.delivery.leave_line()  # nobody reads there, and what is taken in may wait for that
        async with self._intake.lock:
            frames = self._check_resume(resumption, line)
            resumed = SessionResumed(
                event_id=_new_id("event"),
                session=self._machine.session.view(),
                after_seq=resumption.after_seq,
                last_seq=self.delivery.last_seq,
                received_events=self.num_events,
                received_audio_bytes=self._intake.num_audio_bytes,
            )
            # Nothing below waits: no event may come between.
            line.session = self
            try:
                self.delivery.move(line, resumed, frames)
            except SlowReaderError as error:
                self.give_up(line, error)
            self.turns.unpark()
            self.captions.unpark()
            if self.answers is not None:
                self.answers.unpark()

    def _check_resume(self, resumption: SessionResume, line: SessionLine) -> Sequence[str]:
        """The frames that the client missed. Raises ClientError."""
        token = self._machine.dialect.resume_token
        if line.outbox.close_code is not None or self._is_dropped or token is None:
            raise no_such_session()
        if not hmac.compare_digest(token.encode(), resumption.token.encode()):
            raise UnauthorizedError(
                "`token` is not the session's `resume_token`", code="invalid_resume_token", param="token"
            )
        return self.delivery.since(resumption.after_seq)

    async def returned(self) -> None:
        """After `resume`: the client is there again, and the session not idle."""
        await self._intake.put_if_open(ClientReturned())

    async def take(self, frame: str | bytes, line: SessionLine) -> SessionResume | None:
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
            if self.delivery.line is not line:
                return None
            num_bytes = self._intake.num_audio_bytes
            resumption = await self._intake.take(frame)
            came_s = (self._intake.num_audio_bytes - num_bytes) / self._machine.bytes_per_s
            self._arrival.came(came_s, now=trio.current_time())
            return resumption
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        finally:
            lock.release()

    @property
    def is_ahead(self) -> bool:
        """Its client should wait (`keep_pace`) before more is taken."""
        if self._machine.dialect.knows_backpressure:
            return False
        return self._intake.num_waiting > 0 or self._machine.session.is_lagging

    async def keep_pace(self) -> None:
        """Let a client of the flat dialect, which pushes files at full speed, wait for the transcription.

        It knows no backpressure but the socket's, and an append that is refused ends it. If nothing gets
        better for `_PATIENCE_S`, something is wrong, and refusing says so, until it goes on.
        """
        with trio.move_on_after(_PATIENCE_S if self._is_patient else 0.0):
            while self.is_ahead and not self._stepped.is_set():  # it stays set behind the end
                await self._stepped.wait()
        self._is_patient = not self.is_ahead

    async def _converse(self) -> None:
        now = trio.current_time()
        for effect in self._machine.session.open(now=now, created=int(time.time())):
            await self._perform(effect)
        async with open_work() as work:
            self._work = work
            with self._intake.inputs:  # else an outcome that finds no room would wait for ever, and we for it
                await drive(self._machine, self._next_event, self._perform)
            work.cancel_scope.cancel()

    async def _next_event(self) -> AudioBatch | SessionEvent | FlatControl:
        num_received = self._machine.num_samples_received
        self._meter.received_audio((num_received - self._num_metered) * self.num_channels / INTERNAL_RATE)
        self._num_metered = num_received
        num_withheld = self._machine.session.num_withheld
        self._meter.withheld(num_withheld - self._num_withheld)
        self._num_withheld = num_withheld
        self._is_patient |= not self.is_ahead
        if self._stepped.statistics().tasks_waiting:
            self._stepped.set()
            self._stepped = trio.Event()
        if self._machine.session.closed:
            raise trio.EndOfChannel
        await self.delivery.room()
        event = await self._intake.receive()
        if isinstance(event, HypothesisReady):
            self._meter.hypothesis(max(0, num_received - event.end_sample) / INTERNAL_RATE)
        elif isinstance(event, SegmentsReady):
            self._meter.hypothesis(max(0, num_received - event.question.end_sample) / INTERNAL_RATE)
        return event

    async def _perform(self, effect: LiveEffect) -> None:
        match effect:
            case Detect() | Then() | Decode() | EndSound():
                await self._go_on(effect)
            case Send(event, instead):
                self._send(event, instead)
            case Transcribe() | ContinueStream():
                self._transcribe(effect)
            case ForgetBefore(sample, channel):
                self._machine.tracks[channel].store.forget_before(sample)
            case ForgetItem(item_id) | EndStream(item_id):
                self.turns.forget(item_id)
                self.captions.end(item_id)
            case ConfigureAudio(audio_format, num_channels):
                now = trio.current_time()
                for follow_up in self._machine.configure(audio_format, num_channels, now=now):
                    await self._perform(follow_up)
                self._vad_streams.configure(audio_format, num_channels)
            case ConfigureTranscription(model, options, delay_ms):
                self.turns.configure(model, options, delay_ms)
                self.captions.configure(model, options, delay_ms)
            case ResetVoiceActivity(channel):
                self._vad_streams.reset(channel)
            case Close(code, reason):
                self.delivery.close(code, reason)
            case _ if isinstance(effect, DialogueEffect):
                assert self.answers is not None
                assert self._work is not None
                self.answers.perform(effect, self._work)

    def _transcribe(self, effect: Transcribe | ContinueStream) -> None:
        assert self._work is not None
        read, is_pushed = self._machine.tracks[effect.channel].store.copy, self._arrival.is_pushed
        if isinstance(effect, Transcribe):
            self.turns.start(effect, self._work, read, is_pushed=is_pushed)
        else:
            self.captions.start(effect, self._work, read, is_pushed=is_pushed)

    async def _go_on(self, effect: Detect | Then | Decode | EndSound) -> None:
        """Events wait meanwhile, so the session finds its audio and what the client did in their order."""
        follow_ups: Sequence[LiveEffect] = ()
        match effect:
            case Detect(samples, channel):
                scores = await self._vad_streams.score(samples, channel, is_pushed=self._arrival.is_pushed)
                follow_ups = self._machine.scored(scores, channel=channel, now=trio.current_time())
            case Then():
                follow_ups = self._machine.proceed(effect, now=trio.current_time())
            case Decode(piece):
                if piece.is_first:
                    self._machine.begin_append()
                await self._decode(piece.data, piece.event_id, is_first=piece.is_first)
            case EndSound(is_wanted):
                await self._decode(b"", None, is_end=True, is_wanted=is_wanted)
        for follow_up in follow_ups:
            await self._perform(follow_up)

    async def _decode(
        self,
        data: bytes,
        event_id: str | None,
        *,
        is_first: bool = False,
        is_end: bool = False,
        is_wanted: bool = True,
    ) -> None:
        """Have a container's bytes decoded, and hear what is in them before anything else happens."""
        has_more = self._vad_streams.are_decoding
        while has_more:
            try:
                samples, has_more = await self._vad_streams.decode(data, is_first=is_first, is_end=is_end)
            except SensoriumError as error:
                for reported in self._machine.undecodable(error, event_id=event_id, now=trio.current_time()):
                    await self._perform(reported)
                return
            data, is_first = b"", False
            self._arrival.came(samples.shape[-1] / INTERNAL_RATE, now=trio.current_time())
            for part in slices(samples) if is_wanted else ():
                for follow_up in self._machine.decoded(part, event_id=event_id, now=trio.current_time()):
                    await self._perform(follow_up)

    def _send(self, event: ServerEvent, instead: tuple[FlatServerEvent, ...] | None) -> None:
        self.delivery.send(event, instead)
        if self.delivery.is_lost:
            logger.info("session %s: more was said than is kept for a lost client; ended", self.id)
            self.end()


def no_such_session() -> NotFoundError:
    """For a session that never was, has ended, or cannot be resumed."""
    return NotFoundError(
        "there is no such session to resume (any more)", code="session_not_found", param="session_id"
    )


def _new_id(prefix: str, tag: str = "") -> str:
    return f"{prefix}_{(tag + uuid4().hex)[:24]}"
