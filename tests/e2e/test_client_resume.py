"""The SDK goes on with its session when the network between it and a real server is cut."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from sensorium.actors.config.server import RealtimeConfig
from sensorium.client import (
    AsyncClient,
    Client,
    Completed,
    Delta,
    Event,
    Flushed,
    Resumed,
    SessionClosedError,
)
from sensorium.client.audio import Audio, wav_bytes
from sensorium.client.cli.listen import listen_to
from sensorium.client.realtime.events import SessionUpdated
from support.both_loops import both_loops
from support.cutting_proxy import CuttingProxy, cutting_proxy
from support.raw_socket import pcm, silence
from support.server import Server, make_config, running_server, wait_until

pytestmark = pytest.mark.slow


def delay_of(updated: SessionUpdated) -> object:
    assert updated.session.audio.input.transcription is not None
    return updated.session.audio.input.transcription.delay


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    realtime = RealtimeConfig(resume_grace_s=3.0, force_turn_s=40.0, release_delay="low")
    with running_server(make_config(realtime=realtime)) as server:
        yield server
        server.wait_quiet()


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    with cutting_proxy(server.port) as proxy:
        yield proxy


def pieces(lights: bytes) -> list[bytes]:
    """The sentence twice, with pauses, in pieces of 100 ms."""
    audio = (pcm(lights) + silence(1.0)) * 2
    return [audio[start : start + 3_200] for start in range(0, len(audio), 3_200)]


def check(events: list[Event], expected: list[str], num_resumed: int) -> None:
    """Both turns are there, whole and once."""
    finals = [event for event in events if isinstance(event, Completed)]
    assert [event.transcript for event in finals] == expected
    for final in finals:
        deltas = [
            event.delta for event in events if isinstance(event, Delta) and event.item_id == final.item_id
        ]
        assert "".join(deltas) == final.transcript
    assert sum(isinstance(event, Resumed) for event in events) == num_resumed


def uncut(server: Server, chunks: list[bytes]) -> list[str]:
    with Client(server.url) as client, client.realtime(sample_rate=16_000) as session:
        events = list(session.transcribe(chunks))
    return [event.transcript for event in events if isinstance(event, Completed)]


def cut_twice(proxy: CuttingProxy, chunks: list[bytes]) -> Iterator[bytes]:
    """The chunks, through connections that end; those sent in the last 400 ms before do not arrive."""
    for index, chunk in enumerate(chunks):
        if index in (4, 26):
            proxy.stall()
        if index in (8, 30):
            proxy.cut()
            proxy.flow()
        yield chunk


def test_a_cut_network_changes_nothing_but_time(server: Server, proxy: CuttingProxy, lights: bytes) -> None:
    chunks = pieces(lights)
    with Client(proxy.url) as client, client.realtime(sample_rate=16_000) as session:
        events = list(session.transcribe(cut_twice(proxy, chunks), speed=4.0))
    check(events, uncut(server, chunks), 2)


def test_a_cut_while_only_listening(server: Server, proxy: CuttingProxy, lights: bytes) -> None:
    audio = pcm(lights)
    with Client(proxy.url) as client, client.realtime(sample_rate=16_000, turn_detection=None) as session:
        session.send(audio)
        session.finish()
        proxy.refusing = True
        proxy.cut()
        threading.Timer(0.5, lambda: setattr(proxy, "refusing", False)).start()
        events = list(session)
    assert [event.transcript for event in events if isinstance(event, Completed)] == uncut(server, [audio])
    assert proxy.num_accepted > 2


@both_loops
async def test_a_cut_network_under_both_libraries(server: Server, proxy: CuttingProxy, lights: bytes) -> None:
    chunks = pieces(lights)
    events: list[Event] = []

    async with AsyncClient(proxy.url) as client, client.realtime(sample_rate=16_000) as session:
        events.extend([event async for event in session.transcribe(cut_twice(proxy, chunks), speed=4.0)])
    check(events, uncut(server, chunks), 2)


def test_a_network_that_stays_away_is_the_old_error(proxy: CuttingProxy, lights: bytes) -> None:
    with Client(proxy.url) as client, client.realtime(sample_rate=16_000) as session:
        proxy.refusing = True
        proxy.cut()
        started = time.monotonic()
        with pytest.raises(SessionClosedError, match="1006"):
            list(session.transcribe(pieces(lights)))
        assert time.monotonic() - started < 4.0


def test_resuming_can_be_switched_off(proxy: CuttingProxy, lights: bytes) -> None:
    with Client(proxy.url) as client, client.realtime(sample_rate=16_000, resume=False) as session:
        proxy.cut()
        with pytest.raises(SessionClosedError, match="1006"):
            list(session.transcribe(pieces(lights)))


def test_listening_survives_a_cut(
    server: Server, proxy: CuttingProxy, lights: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "beginning.wav"
    recording.write_bytes(wav_bytes(Audio(pcm(lights)[: 2 * 32_000], 16_000)))
    with Client(server.url) as client:
        assert listen_to(client, recording, None, {}) == 0
    expected = capsys.readouterr().out.splitlines()
    threading.Timer(1.0, proxy.cut).start()
    with Client(proxy.url) as client:
        assert listen_to(client, recording, None, {}) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "(the connection was lost; the session goes on)"
    assert shown[1:3] == expected[:2]


def test_cancelled_sessions_say_goodbye(server: Server) -> None:
    async def body() -> None:
        with anyio.move_on_after(0.2):
            async with AsyncClient(server.url) as client, client.realtime() as session:
                async for _ in session:
                    pass

    server.wait_quiet()
    for backend in ("trio", "asyncio"):
        anyio.run(body, backend=backend)
        wait_until(lambda: not server.service.sessions, timeout_s=1.0)


def test_a_flush_and_what_the_operator_decided(server: Server, lights: bytes) -> None:
    with Client(server.url) as client, client.realtime(sample_rate=16_000) as session:
        assert session.created is not None
        assert session.updated is not None
        assert session.created.session.limits.force_turn_s == 40.0
        assert delay_of(session.updated) == "low"
        session.flush()
        assert next(event for event in session if isinstance(event, Flushed)).item_id is None
        session.send(pcm(lights)[: 2 * 16_000])
        session.flush()
        flushed = next(event for event in session if isinstance(event, Flushed))
        completed = next(event for event in session if isinstance(event, Completed))
        assert flushed.item_id == completed.item_id
        assert completed.transcript
    with Client(server.url) as client, client.realtime(delay="high") as session:
        assert session.updated is not None
        assert delay_of(session.updated) == "high"
