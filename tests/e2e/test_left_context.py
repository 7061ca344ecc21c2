"""Turns heard behind earlier ones, over real sockets, with times of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sensorium import Client
from sensorium.client import Completed
from support.raw_socket import pcm, raw_session, silence
from support.running_speech import random_folder
from support.server import Server, make_config, running_server
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

VAD = {"type": "server_vad", "silence_duration_ms": 300}
FIELD = "session.audio.input.transcription.left_context_ms"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A random Whisper of whole windows, and the embedded one."""
    config = make_config(str(random_folder(window_s=30)), "tiny-whisper")
    with running_server(config) as running:
        yield running
        running.wait_quiet()


def test_turns_are_heard_behind_others(server: Server, lights: bytes) -> None:
    """What a random model says depends on it; times are a turn's own in any case."""
    found: dict[int, list[str]] = {}
    for left_context_ms in (0, 1_000, 24_000):
        options: dict[str, Any] = {
            "sample_rate": 16_000,
            "turn_detection": VAD,
            "left_context_ms": left_context_ms,
            "timestamp_granularities": ["word"],
            "language": "en",
        }
        with Client(server.url) as client, client.realtime("random-0", **options) as session:
            events = list(session.transcribe([pcm(lights), silence(1.0)] * 3))
        finals = [event for event in events if isinstance(event, Completed)]
        assert len(finals) == 3
        for final in finals:
            assert final.words
            assert 0 <= final.words[0].start < final.words[-1].end < len(pcm(lights)) / 32_000
        found[left_context_ms] = [final.transcript for final in finals]
    assert found[0] == found[1_000], "no turn begins so shortly before"
    assert found[0][0] == found[24_000][0]
    assert found[0][1] != found[24_000][1] != found[24_000][2] != found[0][2]


def test_it_is_shown_and_may_be_taken_back(server: Server, lights: bytes) -> None:
    with raw_session(f"{server.realtime}?model=random-0") as session:
        for length_ms, shown in ((24_000, 24_000), (None, None), (6_000, 6_000), (0, None)):
            updated = session.configure(turn_detection=VAD, language="en", left_context_ms=length_ms)
            assert updated["session"]["audio"]["input"]["transcription"].get("left_context_ms") == shown
            session.append(pcm(lights) + silence(1.0))
            assert session.until("completed")["transcript"]
            session.events.clear()
        assert "left_context_ms" in updated["session"]["capabilities"]


def transcripts_of_call(server: Server, audio: bytes, left_context_ms: int) -> list[str]:
    query = f"model=random-0&language=en&left_context_ms={left_context_ms}"
    texts = []
    with connect(f"{server.realtime.replace('/realtime', '/calls')}?{query}", open_timeout=60) as socket:
        socket.send(json.dumps({"event": "websocket:connected", "content-type": "audio/l16;rate=16000"}))
        for at in range(0, len(audio), 640):
            socket.send(audio[at : at + 640])
        socket.send(json.dumps({"event": "stop"}))
        for frame in socket:
            event = json.loads(frame)
            assert event["event"] != "error", event
            texts += [event["text"]] if event["event"] == "transcript.completed" else []
    return texts


def test_a_call_takes_it_in_its_address(server: Server, lights: bytes) -> None:
    audio = (pcm(lights) + silence(1.0)) * 2
    alone, with_context = (transcripts_of_call(server, audio, length_ms) for length_ms in (0, 24_000))
    assert len(alone) == len(with_context) == 2
    assert alone[0] == with_context[0]
    assert alone[1] != with_context[1]


def test_a_model_that_hears_turns_alone_refuses_it_by_name(server: Server) -> None:
    with raw_session(f"{server.realtime}?model=tiny-whisper") as session:
        length_ms = {
            "audio": {"input": {"transcription": {"left_context_ms": 24_000}}},
            "type": "transcription",
        }
        session.send({"type": "session.update", "session": length_ms})
        error = session.until("error")["error"]
        assert (error["code"], error["param"]) == ("unsupported_parameter", FIELD)
        assert "tiny-whisper" in error["message"]
