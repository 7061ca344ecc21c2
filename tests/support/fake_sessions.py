"""Live sessions without a network or an engine: sockets in memory, a model that says what it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from msgspec import structs
from sensorium.actors.callers import ANONYMOUS, Caller
from sensorium.actors.live.connection import Line
from sensorium.actors.live.outbox import Outbox
from sensorium.actors.live.registry import SessionRegistry
from sensorium.actors.live.session import SessionActor
from sensorium.actors.live.session_metrics import SessionMeter
from sensorium.actors.live.voice_activity import OpenVadStream
from sensorium.actors.speech.model import FILE, LiveStream, ReadAudio
from sensorium.actors.speech.statistics import SpeechCounts
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.engine.messages import Lane
from sensorium.protocols.engine.statistics import SpeechStatistics
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.streaming import ChunkDelay
from sensorium.protocols.transcription.transcript import Task, TimedSegment, Transcript, TranscriptionOptions
from sensorium.realtime.config import RealtimeModel, SessionConfig
from sensorium.realtime.replay import Replay
from support.sounds import inline_sound
from support.vad_streams import loudness_vad
from trio.testing import wait_all_tasks_blocked

Event = dict[str, Any]

TOKEN = "the token"


class FakeModel:
    """Says where the audio begins and ends, after `work_s`. Counts the turns it keeps something for."""

    def __init__(self, work_s: float = 0.1, turn: type[FakeTurn] | None = None) -> None:
        self.turn = turn or FakeTurn
        self.work_s = work_s
        self.num_held = 0
        self.num_requests = 0
        self.num_pushed = 0
        self.num_queued = 0
        """Of these about pushed audio."""
        self.before: list[tuple[int, ...]] = []
        """Of each turn."""
        self.spoken: list[str | None] = []
        """Of each turn, the language before it."""
        self.language = "en"
        self.language_probability = 1.0

    @property
    def languages(self) -> tuple[str, ...]:
        return ("en", "de")

    @property
    def spells_numbers(self) -> bool:
        """It cannot."""
        return False

    @property
    def supports_left_context(self) -> bool:
        """It says that it does."""
        return True

    @property
    def delays(self) -> tuple[ChunkDelay, ...]:
        """It does not stream."""
        return ()

    @property
    def takes_hints(self) -> bool:
        """It says that it does."""
        return True

    @property
    def tasks(self) -> tuple[Task, ...]:
        return ("transcribe",)

    def statistics(self) -> SpeechStatistics:
        """It counts nothing."""
        return SpeechCounts().statistics()

    def check(self, options: TranscriptionOptions) -> None:
        if options.language not in (None, *self.languages):
            raise BadRequestError("no such language", param="language")
        if not set(options.languages) <= set(self.languages):
            raise BadRequestError("no such language", param="languages")
        if options.task not in self.tasks:
            raise BadRequestError("no such task", param="task")

    async def transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        *,
        lane: Lane = FILE,
        on_delta: Callable[[str], None] | None = None,
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        self.check(options)
        turn = self.live(lambda start, end: samples[start:end], options, start=0)
        try:
            transcript = await turn.hypothesis(len(samples), final=True)
        finally:
            turn.close()
        if on_delta is not None:
            on_delta(transcript.text)
        if on_segment is not None:
            for segment in transcript.segments:
                on_segment(TimedSegment(**structs.asdict(segment)))
        return transcript

    def live(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        before: Sequence[int] = (),
        spoken: str | None = None,
        caller: str = "",
        delay_ms: int | None = None,
        nursery: trio.Nursery | None = None,
    ) -> FakeTurn:
        self.before.append(tuple(before))
        self.spoken.append(spoken)
        return self.turn(self, read, start)

    def stream(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        nursery: trio.Nursery,
        caller: str = "",
        delay_ms: int | None = None,
    ) -> LiveStream:
        """It has no delays, so nobody asks for this."""
        raise AssertionError("it does not stream")


class FakeTurn:
    """One turn of a `FakeModel`."""

    def __init__(self, model: FakeModel, read: ReadAudio, start: int) -> None:
        self._model = model
        self._read = read
        self._start = start
        self._is_open = True
        model.num_held += 1

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        await trio.lowlevel.checkpoint_if_cancelled()
        assert self._is_open
        assert len(self._read(self._start, end)) == end - self._start
        self._model.num_requests += 1
        self._model.num_pushed += is_pushed
        self._model.num_queued += is_queued
        await trio.sleep(self._model.work_s)
        text = f"from {self._start} to {end}"
        return Transcript(
            text=text,
            language=self._model.language,
            duration=(end - self._start) / 16_000,
            language_probability=self._model.language_probability,
        )

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._model.num_held -= 1


class FakeSocket:
    """The client's end: `send` to the server, `received` from it, `vanish` or `leave`."""

    def __init__(self) -> None:
        self._to_server, self._from_client = trio.open_memory_channel[str | bytes](1000)
        self.received: list[Event] = []
        self.closed: tuple[int, str] | None = None
        self.closed_cleanly = False
        self.went_away = False
        self.is_dead = False
        """Nothing arrives at the client any more, and the server does not know."""
        self._can_send = trio.Event()
        self._can_send.set()

    def client_sends(self, *frames: Event | bytes) -> None:
        """Frames on their way to the server."""
        for frame in frames:
            self._to_server.send_nowait(frame if isinstance(frame, bytes) else json.dumps(frame))

    def vanish(self) -> None:
        """The connection is lost; what the client sent before still arrives."""
        self._to_server.close()

    def stall(self) -> None:
        """The client reads nothing any more."""
        self._can_send = trio.Event()

    def go_on(self) -> None:
        """And now it does."""
        self._can_send.set()

    def leave(self) -> None:
        """The client's half of a closing handshake."""
        self.closed_cleanly = True
        self._to_server.close()

    async def receive(self) -> str | bytes | None:
        try:
            return await self._from_client.receive()
        except trio.EndOfChannel:
            return None

    async def send(self, frame: str) -> None:
        await self._can_send.wait()
        if not self.is_dead:
            self.received.append(json.loads(frame))

    async def close(self, code: int, reason: str) -> None:
        if not self.is_dead:
            self.closed = (code, reason)
            self.leave()  # the client answers

    def names(self) -> list[str]:
        """Types of what was received."""
        return [event["type"] for event in self.received]

    def of(self, kind: str) -> list[Event]:
        """Received events whose type ends so."""
        return [event for event in self.received if event["type"].endswith(kind)]


class Sessions:
    """A registry and what its sessions need."""

    def __init__(
        self,
        *,
        grace_s: float = 30.0,
        max_detached: int = 8,
        work_s: float = 0.1,
        replay_events: int = 100,
        open_vad_stream: OpenVadStream = loudness_vad,
        **limits: float,
    ) -> None:
        self.model = FakeModel(work_s)
        self.metrics = Metrics()
        self.num_ended = 0
        self.registry = SessionRegistry(
            self.metrics, grace_s=grace_s, max_detached=max_detached, on_end=self._count
        )
        self._replay_events = replay_events
        self._open_vad_stream = open_vad_stream
        self._config = SessionConfig(
            model="fake",
            models=(RealtimeModel("fake"),),
            resume_grace_s=grace_s,
            **limits,  # type: ignore[arg-type]
        )

    def _count(self) -> None:
        self.num_ended += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Nursery]:
        """The registry runs, and a nursery for clients."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.registry.run)
            yield nursery
            nursery.cancel_scope.cancel()

    def make(self, caller: Caller = ANONYMOUS) -> SessionActor:
        """A session that nobody serves yet."""
        return SessionActor(
            self._config,
            {"fake": self.model},
            self._open_vad_stream,
            inline_sound,
            SessionMeter(self.metrics),
            Replay(max_events=self._replay_events, max_bytes=100_000),
            resume_token=TOKEN,
            caller=caller,
        )

    def line(self, socket: FakeSocket, session: SessionActor | None, caller: Caller = ANONYMOUS) -> Line:
        """A line on a socket."""
        outbox = Outbox(max_events=1000, max_bytes=1_000_000, send_timeout_s=5.0)
        return Line(socket, outbox, session, caller=caller)

    async def connect(self, nursery: trio.Nursery, caller: Caller = ANONYMOUS) -> FakeSocket:
        """A client with a session of its own; `session.created` has arrived."""
        socket = FakeSocket()
        nursery.start_soon(self.registry.serve, self.line(socket, self.make(caller), caller))
        await wait_all_tasks_blocked()
        return socket

    async def resume(
        self, nursery: trio.Nursery, resume_event: Event, caller: Caller = ANONYMOUS
    ) -> FakeSocket:
        """A connection whose first event is that wish."""
        socket = await self.connect(nursery, caller)
        socket.client_sends(resume_event)
        await wait_all_tasks_blocked()
        return socket

    def value(self, name: str, **labels: str) -> float:
        """A metric."""
        return self.metrics.registry.get_sample_value(f"sensorium_{name}", labels) or 0.0


def resume_event(first: FakeSocket, after_seq: int) -> Event:
    """`session.resume` of the session that was created on `first`."""
    session_id = first.received[0]["session"]["id"]
    return {"type": "session.resume", "session_id": session_id, "token": TOKEN, "after_seq": after_seq}
