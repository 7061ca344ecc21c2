"""A line reads its socket whatever the engine does, within a bound; a slow reader ends only its session."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import trio
from sensorium.actors.live import connection as line_module
from sensorium.actors.live.outbox import Outbox
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.transcription.transcript import Transcript
from support.fake_sessions import Event, FakeModel, FakeSocket, FakeTurn, Sessions, resume_event
from support.vad_streams import loudness_vad
from trio.testing import MockClock, wait_all_tasks_blocked

FLAT: Event = {"type": "session.update", "model": "fake"}
FINAL: Event = {"type": "input_audio_buffer.commit", "final": True}
UPDATE: Event = {
    "type": "session.update",
    "session": {"type": "transcription", "audio": {"input": {"turn_detection": None}}},
}
COMMIT: Event = {"type": "input_audio_buffer.commit"}


class CountingSocket(FakeSocket):
    """Counts the frames that the server has read."""

    num_read = 0

    async def receive(self) -> str | bytes | None:
        frame = await super().receive()
        self.num_read += frame is not None
        return frame


async def connect(sessions: Sessions, nursery: trio.Nursery, *, max_events: int = 1000) -> CountingSocket:
    socket = CountingSocket()
    line = sessions.line(socket, sessions.make())
    line.outbox = Outbox(max_events=max_events, max_bytes=1_000_000, send_timeout_s=1000.0)
    nursery.start_soon(sessions.registry.serve, line)
    await wait_all_tasks_blocked()
    return socket


@pytest.fixture
def loud() -> bytes:
    """A second that counts as speech, so that it has to wait for a hypothesis."""
    return (np.ones(16_000, np.int16) * 8_000).tobytes()


async def test_a_flat_client_that_runs_ahead_is_read_and_its_end_is_noticed(
    autojump_clock: MockClock, loud: bytes
) -> None:
    sessions = Sessions(work_s=9.0, max_backlog_ms=10_000)
    async with sessions.running() as nursery:
        socket = await connect(sessions, nursery)
        socket.client_sends(FLAT, *[loud] * 60)
        await wait_all_tasks_blocked()
        assert socket.num_read == 61, "what is behind it, a ping maybe, has been reached"
        assert not socket.of("error")
        assert sessions.model.num_held == 1
        socket.vanish()
        await wait_all_tasks_blocked()
        assert len(sessions.registry) == sessions.model.num_held == 0


async def test_a_large_message_is_given_back_while_the_next_is_waited_for(autojump_clock: MockClock) -> None:
    sessions = Sessions(work_s=0.0)
    async with sessions.running() as nursery:
        socket = await connect(sessions, nursery)
        message = json.dumps({"type": "unknown", "padding": "x" * 50_000}).encode()
        unheld = sys.getrefcount(message)
        socket.client_sends(UPDATE, message)
        await wait_all_tasks_blocked()
        assert socket.of("error")
        assert sys.getrefcount(message) == unheld


async def test_all_that_a_flat_client_pushed_is_transcribed_in_order(
    autojump_clock: MockClock, loud: bytes
) -> None:
    sessions = Sessions(work_s=0.5, max_backlog_ms=10_000)
    async with sessions.running() as nursery:
        socket = await connect(sessions, nursery)
        socket.client_sends(FLAT, *[loud] * 60, FINAL)
        await trio.sleep(100)
        assert not socket.of("error")
        (done,) = socket.of("done")
        assert done["text"].endswith(f"to {60 * 16_000}")
        assert (len(sessions.registry), sessions.model.num_held) == (1, 0)


async def test_a_flat_client_waits_for_an_engine_that_is_stuck_but_not_for_ever(
    autojump_clock: MockClock, loud: bytes
) -> None:
    sessions = Sessions(work_s=60.0, max_backlog_ms=10_000)
    async with sessions.running() as nursery:
        socket = await connect(sessions, nursery)
        socket.client_sends(FLAT, *[loud] * 60)
        await trio.sleep(9)
        assert not socket.of("error")
        await trio.sleep(3)
        assert len(socket.of("error")) > 40, "each of the rest, without a wait of its own"
        assert {event["code"] for event in socket.of("error")} == {"input_audio_buffer_overflow"}


async def test_what_waits_is_bounded(
    autojump_clock: MockClock, loud: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_module, "MAX_WAITING_BYTES", 10 * len(loud))
    sessions = Sessions(work_s=1.0, max_backlog_ms=10_000)
    async with sessions.running() as nursery:
        socket = await connect(sessions, nursery)
        socket.client_sends(FLAT, *[loud] * 60)
        await wait_all_tasks_blocked()
        assert socket.num_read < 20
        await trio.sleep(60)
        assert socket.num_read == 61
        assert not socket.of("error")


async def test_a_slow_reader_whose_socket_dies_meanwhile_ends_its_own_session_only(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outbox overflows, and while what runs for the session is cancelled, its line goes away."""

    class StubbornTurn(FakeTurn):
        async def hypothesis(
            self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
        ) -> Transcript:
            try:
                return await super().hypothesis(end, final=final)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)

    monkeypatch.setattr(
        FakeModel, "live", lambda self, read, options, *, start: StubbornTurn(self, read, start)
    )
    sessions = Sessions(work_s=100.0)
    async with sessions.running() as nursery:
        other = await sessions.connect(nursery)
        socket = await connect(sessions, nursery, max_events=8)
        socket.client_sends(UPDATE, bytes(48_000), COMMIT)
        await wait_all_tasks_blocked()
        socket.stall()
        socket.client_sends(*[UPDATE] * 12)
        await trio.sleep(0.5)
        socket.vanish()
        await trio.sleep(5)
        assert len(sessions.registry) == 1
        assert sessions.model.num_held == 0
        other.client_sends(UPDATE)
        await wait_all_tasks_blocked()
        assert other.of("session.updated")


async def test_a_replay_that_does_not_fit_ends_its_session_only(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        first = await sessions.connect(nursery)
        first.client_sends(*[UPDATE] * 20)
        await wait_all_tasks_blocked()
        first.vanish()
        second = await connect(sessions, nursery, max_events=8)
        second.client_sends(resume_event(first, 1))
        await trio.sleep(5)
        assert second.closed == (1008, "the client reads too slowly")
        assert len(sessions.registry) == sessions.registry.num_detached == 0


class StuckEar:
    """Hears nothing to its end, from when it is told to until it is told not to."""

    def __init__(self) -> None:
        self._is_free = trio.Event()
        self._is_free.set()

    def stick(self) -> None:
        self._is_free = trio.Event()

    def go_on(self) -> None:
        self._is_free.set()

    async def score(self, _: Samples, *, is_pushed: bool = False) -> list[tuple[int, float]]:
        await self._is_free.wait()
        return []

    def reset(self) -> None:
        """There is nothing to forget."""


async def test_who_has_waited_in_vain_once_waits_again_when_it_goes_on(autojump_clock: MockClock) -> None:
    """Else a flat client is refused, and so lost, for a moment's delay hours later."""
    vad_stream = StuckEar()
    sessions = Sessions(open_vad_stream=lambda _: vad_stream)
    async with sessions.running() as nursery:
        socket = await connect(sessions, nursery)
        (session,) = sessions.registry
        socket.client_sends(FLAT)
        num_taken = 1
        for _ in range(2):
            await wait_all_tasks_blocked()
            vad_stream.stick()
            socket.client_sends(*[bytes(100)] * 5)
            await trio.sleep(9.0)
            assert session.num_events < num_taken + 5
            await trio.sleep(2.0)
            num_taken += 5
            assert session.num_events == num_taken
            vad_stream.go_on()


async def test_an_answer_that_finds_no_room_does_not_outlive_its_session(autojump_clock: MockClock) -> None:
    vad_stream = StuckEar()
    sessions = Sessions(work_s=1.0, open_vad_stream=lambda _: vad_stream)
    async with sessions.running() as nursery:
        session, socket = sessions.make(), FakeSocket()
        nursery.start_soon(sessions.registry.serve, sessions.line(socket, session))
        socket.client_sends(UPDATE, bytes(32_000), COMMIT)
        await wait_all_tasks_blocked()
        assert sessions.model.num_requests == 1
        vad_stream.stick()
        socket.client_sends(*[bytes(100)] * 65)  # one being heard, and all that there is room for
        await trio.sleep(2.0)
        socket.leave()
        await wait_all_tasks_blocked()
        assert (len(sessions.registry), sessions.model.num_held) == (0, 0), "and its end would wait for ever"


async def test_a_resumed_session_takes_in_what_it_says_and_nothing_twice(autojump_clock: MockClock) -> None:
    """Also where the old connection is still open, with frames in it that the new one sends again."""
    vad_stream = StuckEar()
    sessions = Sessions(open_vad_stream=lambda _: vad_stream)
    async with sessions.running() as nursery:
        first = await sessions.connect(nursery)
        first.client_sends(UPDATE)
        await wait_all_tasks_blocked()
        vad_stream.stick()
        first.is_dead = True  # it hears of nothing, and so does not close
        first.client_sends(*[bytes(2_000)] * 80)
        second = await sessions.resume(nursery, resume_event(first, 2))
        assert not second.of("resumed"), "a frame is half taken in"
        vad_stream.go_on()
        await wait_all_tasks_blocked()
        (resumed,) = second.of("resumed")
        assert 1 < resumed["received_events"] < 81
        assert resumed["received_audio_bytes"] == 2_000 * (resumed["received_events"] - 1)
        third = await sessions.resume(nursery, resume_event(first, 2))
        (again,) = third.of("resumed")
        assert again["received_events"] == resumed["received_events"]


async def test_of_two_that_resume_at_once_the_later_one_wins(autojump_clock: MockClock) -> None:
    vad_stream = StuckEar()
    sessions = Sessions(open_vad_stream=lambda _: vad_stream)
    async with sessions.running() as nursery:
        first = await sessions.connect(nursery)
        vad_stream.stick()
        first.client_sends(*[bytes(2_000)] * 80)
        second, third = [await sessions.resume(nursery, resume_event(first, 1)) for _ in range(2)]
        vad_stream.go_on()
        await trio.sleep(3.0)
        assert second.closed == (1008, "the session was resumed on another connection")
        third.client_sends(UPDATE)
        await wait_all_tasks_blocked()
        assert third.names()[-2:] == ["session.resumed", "session.updated"]


async def test_a_session_of_the_flat_dialect_is_nobodys_to_resume(autojump_clock: MockClock) -> None:
    async with (sessions := Sessions()).running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(FLAT)
        await wait_all_tasks_blocked()
        other = await sessions.resume(nursery, resume_event(socket, 1))
        await trio.sleep(3.0)
        assert other.of("error")[0]["error"]["code"] == "session_not_found"
        socket.client_sends(bytes(3200), FINAL)
        await trio.sleep(1.0)
        assert socket.of("done")


class BrokenVadStream:
    """Has a fault of ours, from when it is told to."""

    def __init__(self) -> None:
        self.is_broken = False
        self._vad_stream = loudness_vad("")

    async def score(self, samples: Samples, *, is_pushed: bool = False) -> list[tuple[int, float]]:
        if self.is_broken:
            raise RuntimeError("a fault of ours")
        return await self._vad_stream.score(samples)

    def reset(self) -> None:
        self._vad_stream.reset()


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("update", [UPDATE, FLAT])
async def test_a_session_that_breaks_says_so_and_keeps_nothing_and_hurts_nobody(
    autojump_clock: MockClock, loud: bytes, update: Event, is_read: bool
) -> None:
    streams: list[BrokenVadStream] = []

    def open_vad_stream(_: str) -> BrokenVadStream:
        streams.append(BrokenVadStream())
        return streams[-1]

    sessions = Sessions(open_vad_stream=open_vad_stream)
    async with sessions.running() as nursery:
        other = await sessions.connect(nursery)
        socket = await connect(sessions, nursery, max_events=4)
        socket.client_sends(update, loud, loud)
        await trio.sleep(1.0)
        assert sessions.model.num_held == 1
        if not is_read:
            socket.stall()
            socket.client_sends(*[update] * 5)  # as many answers as there is room for
            await wait_all_tasks_blocked()
        streams[-1].is_broken = True
        socket.client_sends(loud)
        await wait_all_tasks_blocked()
        assert sessions.model.num_held == 0
        socket.go_on()
        await wait_all_tasks_blocked()
        assert socket.closed == (1011, "the session failed")
        errors = [event["error"] for event in socket.of("error")]
        if update is FLAT:
            assert errors == ["the session failed"] * is_read
        else:
            assert [each["code"] for each in errors] == ["internal_error"] * is_read
            numbers = [event["server_event_seq"] for event in socket.received]
            assert numbers == list(range(1, len(numbers) + 1))
        other.client_sends(UPDATE, loud, COMMIT)
        await trio.sleep(1.0)
        assert other.of("completed")


async def test_a_client_that_reads_too_slowly_is_told_so(autojump_clock: MockClock) -> None:
    async with (sessions := Sessions()).running() as nursery:
        socket = await connect(sessions, nursery, max_events=4)
        socket.stall()
        socket.client_sends(*[UPDATE] * 6)
        await wait_all_tasks_blocked()
        socket.go_on()
        await wait_all_tasks_blocked()
        assert socket.closed == (1008, "the client reads too slowly")


async def test_the_session_of_a_client_that_reads_nothing_for_long_ends(
    autojump_clock: MockClock, loud: bytes
) -> None:
    async with (sessions := Sessions()).running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(UPDATE, loud, loud)
        await trio.sleep(1.0)
        assert sessions.model.num_held == 1
        socket.stall()
        socket.client_sends(UPDATE)
        await trio.sleep(7.0)
        assert sessions.model.num_held == 0
        socket.go_on()
        await wait_all_tasks_blocked()
        assert socket.closed == (1008, "the client reads too slowly")
        assert len(sessions.registry) == 0


async def test_who_has_not_read_that_a_session_ended_does_not_hinder_a_drain(
    autojump_clock: MockClock,
) -> None:
    async with (sessions := Sessions(idle_s=5.0)).running() as nursery:
        socket = await connect(sessions, nursery)
        socket.stall()
        await trio.sleep(6.0)
        (session,) = sessions.registry
        session.drain()
        socket.go_on()
        await wait_all_tasks_blocked()
        assert socket.closed == (1008, "session_idle")


@pytest.mark.parametrize("interval_s", [0.0, 1.0])
async def test_only_what_is_pushed_comes_behind_speech(
    autojump_clock: MockClock, loud: bytes, interval_s: float
) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        socket = await connect(sessions, nursery)
        socket.client_sends(UPDATE)
        for _ in range(8):
            socket.client_sends(loud, COMMIT)
            await trio.sleep(interval_s)
        await trio.sleep(5.0)
        assert len(socket.of("completed")) == 8
        pushed = sessions.model.num_pushed
        assert pushed == 0 if interval_s else pushed >= 5, "all but the turns of the first two seconds"
