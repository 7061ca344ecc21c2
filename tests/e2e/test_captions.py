"""Captions: sessions without turns of a model that streams, behind a real server."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from sensorium.actors.config.server import EngineConfig, ProcessConfig
from sensorium.client import Client
from sensorium.client.realtime.events import Committed, Completed, Delta, Event, SpeechStarted
from support.children import engine_process
from support.nemotron_folder import ConformerShape, make_nemotron_folder
from support.raw_socket import RawSession, pcm, raw_session, silence
from support.server import Server, make_config, running_server
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

ENGINE = EngineConfig(device="cpu", dtype="float32", num_threads=1, max_running=4)
CAPTIONS = {"type": "captions", "silence_duration_ms": 400, "max_segment_ms": 1_500}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random checkpoints of one language and of many."""
    root = tmp_path_factory.mktemp("nemotron")
    many = ConformerShape(num_mel_bins=128, has_bias=False, scale_input=False, sliding_window=57)
    return {
        "english": make_nemotron_folder(root / "english"),
        "multilingual": make_nemotron_folder(root / "multilingual", many, multilingual=True, seed=1),
    }


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    config = make_config(*map(str, folders.values()), "tiny-whisper", engine=ENGINE)
    with running_server(config) as server:
        yield server
        server.wait_quiet()


@pytest.fixture(scope="module")
def speech(lights: bytes) -> bytes:
    """PCM16 of speech, with pauses."""
    return (pcm(lights) + silence(0.7)) * 2


def speak(session: RawSession, audio: bytes, size: int = 6_400) -> None:
    """Append all of it."""
    for start in range(0, len(audio), size):
        session.append_binary(audio[start : start + size])


def finish(session: RawSession) -> None:
    """Commit what is left, and receive all answers."""
    session.commit()
    session.send({"type": "input_audio_buffer.clear"})
    session.until("cleared")
    while len(session.seen("completed")) < len(session.seen("committed")):
        session.until("completed")


def items(session: RawSession) -> list[dict[str, Any]]:
    """The completed items, each of which was shown as it is."""
    found = session.seen("completed")
    for each in found:
        assert session.deltas(each["item_id"]) == each["transcript"]
    return found


def letters(texts: list[str]) -> str:
    """Without spaces: a segment may begin within a word where none is too long to be waited for."""
    return "".join("".join(texts).split())


def samples(audio: bytes) -> npt.NDArray[np.int16]:
    """Of PCM16."""
    return np.frombuffer(audio, "<i2")


def file_text(server: Server, audio: bytes, model: str = "english") -> str:
    """The text of a file."""
    with Client(server.url) as client:
        return client.transcribe(samples(audio), model=model).text


def check_times(session: RawSession) -> None:
    """Items follow each other, none is much longer than allowed, and words are in order within them."""
    position = 0
    commits = session.seen("committed")
    for commit in commits:
        assert position <= commit["audio_start_ms"] < commit["audio_end_ms"]
        position = commit["audio_end_ms"]
    for commit in commits[:-1]:  # the last one was ended by the client
        assert commit["audio_end_ms"] - commit["audio_start_ms"] < 1_500 + 480 + 2_000 + 400
    for completed in session.seen("completed"):
        starts = [word["start"] for word in completed["words"]]
        assert starts == sorted(starts)
        assert all(start >= 0 for start in starts)


def test_captions_are_the_text_of_a_file(server: Server, speech: bytes) -> None:
    """One stream with the delay of files: cut into segments, and no word lost at any seam."""
    with raw_session(f"{server.realtime}?model=english") as session:
        view = session.configure(
            turn_detection=CAPTIONS,
            delay="high",
            timestamp_granularities=["word"],
        )
        assert view["session"]["audio"]["input"]["turn_detection"] == CAPTIONS
        speak(session, speech)
        for _ in range(3):
            session.until("completed")
        finish(session)
        found = items(session)
        check_times(session)
    assert len(found) > 2
    assert not session.seen("speech_started")
    assert letters([each["transcript"] for each in found]) == letters([file_text(server, speech)])


def test_the_process_is_killed(folders: dict[str, Path], speech: bytes) -> None:
    """What was shown stays, and captions go on behind it."""
    process = ProcessConfig(engine_process="on")
    with running_server(make_config(str(folders["english"]), engine=ENGINE, process=process)) as server:
        with raw_session(f"{server.realtime}?model=english") as session:
            session.configure(turn_detection=CAPTIONS, delay="medium", timestamp_granularities=["word"])
            half = len(speech) // 4 * 2
            speak(session, speech[:half])
            session.until("completed")
            os.kill(engine_process(), signal.SIGKILL)
            speak(session, speech[half:])
            num_before = len(session.seen("completed"))
            finish(session)
            assert len(items(session)) > num_before
            check_times(session)
        server.wait_quiet()


def test_models_that_do_not_stream_refuse_it(server: Server) -> None:
    with raw_session(f"{server.realtime}?model=tiny-whisper") as session:
        audio = {"input": {"turn_detection": CAPTIONS}}
        session.send({"type": "session.update", "session": {"type": "transcription", "audio": audio}})
        while not (errors := session.seen("error")):
            session.receive()
        error = errors[0]["error"]
        assert error["param"] == "session.audio.input.turn_detection.type"
        assert "english, multilingual" in error["message"]


def test_captions_by_the_sdk(server: Server, speech: bytes) -> None:
    """Iteration ends by itself once all is answered; segments have no beginnings of speech."""
    with (
        Client(server.url) as client,
        client.realtime(
            "english", sample_rate=16_000, turn_detection=CAPTIONS, delay="high", utterance_end_ms=600
        ) as session,
    ):
        session.send(speech)
        events: list[Event] = []
        for event in session:
            events.append(event)
            if sum(isinstance(each, Completed) for each in events) == 3:
                session.finish()
    assert not any(isinstance(event, SpeechStarted) for event in events)
    completed = [event for event in events if isinstance(event, Completed)]
    assert len(completed) == sum(isinstance(event, Committed) for event in events) > 2
    text = letters([event.transcript for event in completed])
    assert text == letters([event.delta for event in events if isinstance(event, Delta)])
    assert text == letters([file_text(server, speech)])


def test_captions_in_the_flat_dialect(server: Server, speech: bytes) -> None:
    """An ephemeral key says so, as that dialect has no word for it."""
    asked = {"turn_detection": CAPTIONS, "transcription": {"model": "english", "delay": "high"}}
    body = {"session": {"type": "transcription", "audio": {"input": asked}}}
    secret = httpx.post(f"{server.api}/realtime/client_secrets", json=body).json()
    headers = {"Authorization": f"Bearer {secret['value']}"}
    with connect(server.realtime, additional_headers=headers, max_size=None) as socket:
        socket.send(json.dumps({"type": "session.update", "model": "english"}))
        for start in range(0, len(speech), 64_000):
            audio = base64.b64encode(speech[start : start + 64_000]).decode()
            socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        socket.send(json.dumps({"type": "input_audio_buffer.commit", "final": True}))
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "transcription.done":
            events.append(json.loads(socket.recv(60)))
            assert events[-1]["type"] != "error", events[-1]
    deltas = [event["delta"] for event in events if event["type"] == "transcription.delta"]
    assert "".join(deltas) == events[-1]["text"]
    assert letters([events[-1]["text"]]) == letters([file_text(server, speech)])
