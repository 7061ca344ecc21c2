"""What nobody said gives no text, live and in files; turns know nothing of each other; tiny commits are
answered."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from sensorium.engine.models.registry import embedded_models
from support.raw_socket import Event, RawSession, pcm, raw_session, silence
from support.server import Server, make_config, running_server
from support.signals import WITHOUT_SPEECH, FloatArray, chords, pink_noise, white_noise

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[2] / "examples" / "data"
VAD: Event = {"type": "server_vad"}
KEYWORDS = ["Sensorium", "Łukasz", "kitchen", "Zürich"]
PROMPT = "Names of people: Sensorium, Łukasz, Zürich."
MINIMUM = 1_600
"""Samples of the shortest commit, 100 ms."""


MODELS = tuple(name for name in ("tiny-whisper", "tiny-qwen3-asr") if name in embedded_models())


@pytest.fixture(scope="module", params=MODELS)
def speech_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each model that transcribes; tiny-whisper's is shared."""
    if request.param == "tiny-whisper":
        yield request.getfixturevalue("shared_server")
    else:
        with running_server(make_config(request.param)) as server:
            yield server


@pytest.fixture
def server(speech_server: Server) -> Iterator[Server]:
    """The test fails if it leaves anything held."""
    yield speech_server
    speech_server.wait_quiet()


def pcm16(samples: FloatArray) -> bytes:
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def wav(samples: FloatArray) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16_000, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def posted(server: Server, samples: FloatArray, **fields: object) -> Event:
    """The answer to a file."""
    answer = httpx.post(
        f"{server.api}/audio/transcriptions", files={"file": ("a.wav", wav(samples))}, data=fields, timeout=60
    )
    assert answer.status_code == 200, answer.text
    found: Event = answer.json()
    return found


def sentences() -> list[bytes]:
    """Each turn of the conversation, cut out of it."""
    audio = pcm((DATA / "conversation.wav").read_bytes())
    turns = json.loads((DATA / "conversation.json").read_text(encoding="utf-8"))["turns"]
    return [audio[32 * max(0, turn["start_ms"] - 200) : 32 * (turn["end_ms"] + 200)] for turn in turns]


def send(session: RawSession, audio: bytes) -> None:
    """In pieces of 200 ms, as clients do."""
    for start in range(0, len(audio), 6_400):
        session.append(audio[start : start + 6_400])


def committed_text(session: RawSession, audio: bytes) -> str:
    """The transcript of audio that the client commits."""
    send(session, audio)
    session.commit()
    completed = session.until("completed")
    return str(completed["transcript"])


def spoken(session: RawSession) -> str:
    """Every word the server has shown."""
    deltas = "".join(event["delta"] for event in session.seen("transcription.delta"))
    return deltas + "".join(event["transcript"] for event in session.seen("completed"))


@pytest.mark.parametrize("name", WITHOUT_SPEECH)
def test_what_holds_no_speech_gives_no_text(server: Server, name: str) -> None:
    samples = WITHOUT_SPEECH[name](3.0)
    assert posted(server, samples)["text"] == ""
    with raw_session(server.realtime) as session:
        session.configure()
        assert committed_text(session, pcm16(samples)) == ""
        session.configure(turn_detection=VAD)
        send(session, pcm16(samples) + silence(1.0))
        session.commit()  # answered at once; it may find no turn, or nothing at all
        session.until("completed")
        assert spoken(session) == ""


@pytest.mark.parametrize("name", ["digital silence", "near zero", "pink", "hum", "chords"])
def test_the_context_does_not_come_back(server: Server, name: str) -> None:
    samples = WITHOUT_SPEECH[name](2.0)
    assert posted(server, samples, prompt=PROMPT)["text"] == ""
    with raw_session(server.realtime) as session:
        session.configure(prompt=PROMPT, keywords=KEYWORDS)
        assert committed_text(session, pcm16(samples)) == ""


def test_noise_around_speech_adds_no_words(server: Server, lights: bytes) -> None:
    speech: FloatArray = np.frombuffer(pcm(lights), "<i2").astype(np.float32) / np.float32(32768)
    alone = posted(server, speech)["text"]
    noise = white_noise(2.0, level_db=-60)
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=VAD)
        send(session, pcm16(np.concatenate((noise, speech, noise, pink_noise(2.0, level_db=-55)))))
        assert session.until("completed")["transcript"] == alone
        session.commit()
        session.until("completed")
    assert len(session.seen("completed")) == 2
    assert spoken(session).count(alone) <= 2
    assert session.seen("completed")[1]["transcript"] == ""


def test_turns_do_not_bleed_into_each_other(server: Server) -> None:
    first, second, *_ = sentences()
    with raw_session(server.realtime) as alone:
        alone.configure()
        expected = committed_text(alone, second)
    with raw_session(server.realtime) as both:
        both.configure()
        assert committed_text(both, first) != expected
        assert committed_text(both, pcm16(chords(1.5))) == ""
        assert committed_text(both, second) == expected
        assert committed_text(both, silence(1.0)) == ""
        assert committed_text(both, first) + committed_text(both, second) == (
            both.seen("completed")[0]["transcript"] + expected
        )


@pytest.mark.parametrize("detection", [None, VAD])
@pytest.mark.parametrize("num_samples", [0, 1, MINIMUM - 1])
def test_too_short_a_commit_is_an_error_that_costs_nothing(
    server: Server, lights: bytes, detection: Event | None, num_samples: int
) -> None:
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=detection)
        if num_samples:
            session.append(bytes(2 * num_samples))
        session.commit()
        error = session.receive()
        assert error["type"] == "error"
        assert error["error"]["code"] == "input_audio_buffer_commit_empty"
        assert not session.seen("committed")
        session.configure(turn_detection=None)
        send(session, pcm(lights))
        session.commit()
        assert session.until("completed")["transcript"]
        committed = session.seen("committed")[0]
        assert committed["audio_end_ms"] - committed["audio_start_ms"] >= len(pcm(lights)) // 32
        assert len(session.seen("completed")) == 1


@pytest.mark.parametrize("detection", [None, VAD])
@pytest.mark.parametrize("sound", [0.0, 0.1])
def test_the_shortest_commit_is_answered_once(server: Server, detection: Event | None, sound: float) -> None:
    samples = sound * np.sin(np.arange(MINIMUM, dtype=np.float32) / 9)
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=detection)
        session.append(pcm16(samples.astype(np.float32)))
        session.commit()
        completed = session.until("completed")
        assert completed["transcript"] == ""
        session.commit()  # again, with nothing new
        assert session.until("completed")["transcript"] == ""
        items = [event["item_id"] for event in session.seen("committed")]
        assert items == [event["item_id"] for event in session.seen("completed")]


def test_a_word_after_long_silence_is_heard(server: Server, lights: bytes) -> None:
    with raw_session(server.realtime) as session:
        session.configure()
        assert committed_text(session, silence(8.0) + pcm(lights))
