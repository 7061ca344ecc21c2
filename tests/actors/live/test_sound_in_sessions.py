"""Sessions whose sound comes in containers: what a commit finds, what is refused, and what goes on."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
import trio
from sensorium.actors.live import inbound as intake
from sensorium.media.audio.decode import decode_audio
from support.fake_sessions import Event, FakeSocket, Sessions, resume_event
from support.sound_streams import ogg, voice, webm
from trio.testing import MockClock

WEBM, OGG = webm(voice(1.0)), ogg(voice(0.6))
COMMIT: Event = {"type": "input_audio_buffer.commit"}
CLEAR: Event = {"type": "input_audio_buffer.clear"}


def update(wire_type: str) -> Event:
    audio_input = {"format": {"type": wire_type}, "turn_detection": None}
    return {"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio_input}}}


def append(data: bytes) -> Event:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode(), "event_id": "mine"}


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are read at once, whatever their size: a virtual minute is over before a thread is done."""
    monkeypatch.setattr(intake, "_INLINE_CHARS", 1 << 24)


@asynccontextmanager
async def connected(sessions: Sessions, wire_type: str) -> AsyncIterator[tuple[FakeSocket, trio.Nursery]]:
    async with trio.open_nursery() as nursery:
        await nursery.start(sessions.registry.run)
        socket = await sessions.connect(nursery)
        socket.client_sends(update(wire_type))
        yield socket, nursery
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 (a condition without an event)
            await trio.sleep(0.1)


async def transcripts(socket: FakeSocket, num: int) -> list[str]:
    await until(lambda: len(socket.of(".completed")) >= num)
    return [event["transcript"] for event in socket.of(".completed")]


@pytest.mark.parametrize(
    "wire_type", ["audio/webm;codecs=opus", "audio/webm", "auto", 'AUDIO/WEBM; codecs="opus"']
)
async def test_a_commit_finds_every_sample(wire_type: str, autojump_clock: MockClock) -> None:
    async with connected(Sessions(), wire_type) as (socket, _):
        socket.client_sends(WEBM[:1_000], append(WEBM[1_000:2_222]), WEBM[2_222:], COMMIT)
        assert await transcripts(socket, 1) == [f"from 0 to {len(decode_audio(WEBM).samples)}"]
        shown = socket.of("session.updated")[0]["session"]["audio"]["input"]["format"]
        assert shown["type"] == wire_type.lower().replace(" ", "").replace('"', "")


async def test_formats_change_without_loss(autojump_clock: MockClock) -> None:
    raw = (8_000 * np.ones(16_000)).astype("<i2").tobytes()
    pcm = update("audio/pcm")
    pcm["session"]["audio"]["input"]["format"]["rate"] = 16_000
    async with connected(Sessions(), "audio/webm") as (socket, _):
        socket.client_sends(WEBM, pcm, raw, update("audio/ogg"), OGG, COMMIT)
        num_samples = len(decode_audio(WEBM).samples) + 16_000 + len(decode_audio(OGG).samples)
        assert await transcripts(socket, 1) == [f"from 0 to {num_samples}"]


async def test_clear_drops_what_came_and_the_stream_goes_on(autojump_clock: MockClock) -> None:
    async with connected(Sessions(), "audio/webm") as (socket, _):
        socket.client_sends(WEBM[:4_000], CLEAR, WEBM[4_000:], COMMIT)
        ((_, start, _, end),) = [text.split() for text in await transcripts(socket, 1)]
        assert 5_000 < int(end) - int(start) < 14_000
        assert not socket.of("error")


async def test_what_is_no_stream_is_refused_once_for_an_append(autojump_clock: MockClock) -> None:
    async with connected(Sessions(), "audio/ogg") as (socket, _):
        socket.client_sends(append(bytes(1_100_000)), CLEAR)
        await until(lambda: bool(socket.of("cleared")))
        (error,) = socket.of("error")
        problem = error["error"]
        assert (problem["code"], problem["param"], problem["event_id"]) == ("invalid_audio", "audio", "mine")
        assert "no Opus audio came" in problem["message"]


async def test_more_sound_than_there_is_room_for_is_refused(autojump_clock: MockClock) -> None:
    async with connected(Sessions(max_backlog_ms=2_000), "audio/webm") as (socket, _):
        long = webm(voice(9.0))
        socket.client_sends(long[: len(long) // 3], append(long[len(long) // 3 :]), COMMIT)
        await transcripts(socket, 1)
        assert {event["error"]["code"] for event in socket.of("error")} == {"input_audio_buffer_overflow"}
        assert len(socket.of("error")) <= 2, "once for an append"


async def test_what_is_refused_is_missing_and_the_stream_goes_on(autojump_clock: MockClock) -> None:
    long = webm(voice(12.0))
    first, last = len(long) // 12, len(long) * 11 // 12
    sessions = Sessions(max_backlog_ms=4_000, max_append_bytes=len(long))
    async with connected(sessions, "audio/webm") as (socket, _):
        socket.client_sends(append(bytes(len(long) + 1)), append(long[:first]), long[first:last], COMMIT)
        await transcripts(socket, 1)
        codes = [event["error"]["code"] for event in socket.of("error")]
        assert codes == ["too_large", "input_audio_buffer_overflow"], "each of them once"
        socket.client_sends(append(long[last:]), COMMIT)
        (*_, (_, start, _, end)) = [text.split() for text in await transcripts(socket, 2)]
        assert 8_000 < int(end) - int(start) < 32_000
        assert len(socket.of("error")) == 2


async def test_a_recording_that_is_pushed_in_a_container_comes_behind_speech(
    autojump_clock: MockClock,
) -> None:
    sessions = Sessions()
    async with connected(sessions, "audio/webm") as (socket, _):
        socket.client_sends(webm(voice(9.0)), COMMIT)
        await transcripts(socket, 1)
        assert sessions.model.num_pushed


async def test_a_lost_client_goes_on_in_the_middle_of_a_block(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    async with connected(sessions, "audio/webm") as (socket, nursery):
        socket.client_sends(WEBM[:3_333])
        await trio.sleep(1)
        socket.vanish()
        await trio.sleep(1)
        again = await sessions.resume(nursery, resume_event(socket, 2))
        (resumed,) = again.of("resumed")
        assert (resumed["received_events"], resumed["received_audio_bytes"]) == (2, 3_333)
        again.client_sends(WEBM[3_333:], COMMIT)
        assert await transcripts(again, 1) == [f"from 0 to {len(decode_audio(WEBM).samples)}"]


@pytest.mark.parametrize(
    ("wire_type", "code", "words"),
    [
        ("audio/webm;codecs=vorbis", "unsupported_audio_codec", "names the codec 'vorbis'"),
        ("audio/ogg;rate=3", "invalid_value", "only codecs is known"),
        ("audio/midi", "invalid_value", "must be one of audio/pcm"),
        ("application/vnd.apple.mpegurl", "invalid_value", "must be one of"),
    ],
)
async def test_types_that_are_not_served(
    wire_type: str, code: str, words: str, autojump_clock: MockClock
) -> None:
    async with connected(Sessions(), wire_type) as (socket, _):
        await trio.sleep(1)
        (error,) = socket.of("error")
        assert error["error"]["code"] == code
        assert error["error"]["param"] == "session.audio.input.format.type"
        assert words in error["error"]["message"]
