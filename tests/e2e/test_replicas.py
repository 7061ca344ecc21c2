"""A server of two replicas: sessions go on, and nothing is lost or doubled, whatever becomes of one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from sensorium.actors.config.server import EngineConfig, ProcessConfig
from support.raw_socket import RawSession, pcm, raw_session
from support.server import Server, make_config, running_server, wait_until

pytestmark = pytest.mark.slow

MODEL = "tiny-qwen3-asr"
NUM_SESSIONS = 6
ENGINE = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="32MiB", max_running=8)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    config = make_config(MODEL, engine=ENGINE, process=ProcessConfig(engine_process="on", replicas=2))
    with running_server(config) as server:
        yield server
        server.wait_quiet()


def engine_processes() -> list[int]:
    """The children of this process that run engines, in the order of their start."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = path.read_text().rsplit(")", 1)
            if int(rest.split()[1]) == os.getpid() and name.endswith("(sensorium-model"):
                found.append(int(path.parent.name))
    return sorted(found)


def is_ready(server: Server) -> bool:
    """Whether all replicas take requests."""
    return httpx.get(f"{server.url}/metrics").text.count("sensorium_replica_ready{") == 2 and all(
        f'sensorium_replica_ready{{replica="{replica}"}} 1.0' in httpx.get(f"{server.url}/metrics").text
        for replica in "01"
    )


def speak(session: RawSession, audio: bytes) -> None:
    """All of it; the end of the turn is to come."""
    for start in range(0, len(audio), 8_000):
        session.append_binary(audio[start : start + 8_000])


def turn(session: RawSession) -> str:
    """The transcript of the next turn, whose deltas are the same text."""
    completed = session.until("completed")
    deltas = session.deltas(completed["item_id"])
    assert deltas in ("", completed["transcript"])
    text: str = completed["transcript"]
    return text


def transcribe(server: Server, audio: bytes) -> str:
    url, files = f"{server.api}/audio/transcriptions", {"file": ("a.wav", audio)}
    text: str = httpx.post(url, files=files, data={"model": MODEL}, timeout=60).json()["text"]
    return text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_is_lost_under_live_sessions(server: Server, lights: bytes, number: signal.Signals) -> None:
    audio, text = pcm(lights), transcribe(server, lights)
    half = len(audio) // 16_000 * 8_000
    victim, other = engine_processes()
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(raw_session(f"{server.realtime}?model={MODEL}")) for _ in range(NUM_SESSIONS)
        ]
        for session in sessions:
            session.configure()
            speak(session, audio[:half])
        os.kill(victim, number)
        try:
            for session in sessions:
                speak(session, audio[half:])
                session.commit()
            assert [turn(session) for session in sessions] == [text] * NUM_SESSIONS
            assert transcribe(server, lights) == text
        finally:
            if number is signal.SIGSTOP:
                os.kill(victim, signal.SIGCONT)
        wait_until(lambda: is_ready(server), timeout_s=60)
        assert other in engine_processes()
        assert (victim in engine_processes()) == (number is signal.SIGSTOP)
        for session in sessions:
            speak(session, audio)
            session.commit()
        assert [turn(session) for session in sessions] == [text] * NUM_SESSIONS
