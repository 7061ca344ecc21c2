"""A CTC model of whole windows behind a real server: every way to have a file transcribed, and live turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from sensorium import Client, LocalEngine
from sensorium.actors.config.server import EngineConfig, ProcessConfig
from sensorium.engine.models.nemotron_asr.text import TransducerText
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.audio.nemo_features import NemoFeatureConfig, log_mel, normalised
from support.audio_files import sound_file
from support.command_line import Run
from support.ctc_reference import said_in
from support.nemotron_folder import make_parakeet_folder
from support.raw_socket import pcm, raw_session, silence
from support.server import Server, make_config, running_server
from transformers import ParakeetForCTC

pytestmark = pytest.mark.slow

ENGINE = EngineConfig(device="cpu", dtype="float32", num_threads=1, max_running=8)
LONG_TIMES = 12
"""As often the sentence is said in a recording of several windows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_parakeet_folder(tmp_path_factory.mktemp("models") / "parakeet")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """The model is in a process of its own."""
    process = ProcessConfig(engine_process="on")
    with running_server(make_config(str(folder), engine=ENGINE, process=process)) as running:
        yield running
        running.wait_quiet()


def samples_of(audio: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (np.frombuffer(pcm(audio), "<i2") / 32_768).astype(np.float32)


@pytest.fixture(scope="module")
def long(lights: bytes) -> bytes:
    """A WAV file of more than one window."""
    samples = samples_of(lights)
    return sound_file(np.concatenate([samples, np.zeros(6_000, np.float32)] * LONG_TIMES))


@pytest.fixture(scope="module")
def expected(folder: Path, lights: bytes) -> str:
    """What `transformers` makes of the sentence."""
    model = ParakeetForCTC.from_pretrained(folder, dtype=torch.float32).eval()
    said = said_in(model, [normalised(log_mel(samples_of(lights), NemoFeatureConfig(80)))])[0]
    text = TransducerText(TextTokenizer.from_folder(folder))
    return text.decode([token.token_id for token in said]).strip()


def post(server: Server, audio: bytes, route: str = "transcriptions", **fields: Any) -> httpx.Response:  # noqa: ANN401
    url = f"{server.api}/audio/{route}"
    return httpx.post(url, files={"file": ("a.wav", audio)}, data={**fields}, timeout=60)


def test_a_file_is_what_transformers_says(server: Server, lights: bytes, expected: str) -> None:
    assert len(expected) > 10
    assert post(server, lights).json()["text"] == expected
    assert post(server, lights, response_format="text").text.strip() == expected
    assert post(server, lights, language="en").json()["text"] == expected


def test_words_and_segments(server: Server, long: bytes) -> None:
    fields: dict[str, Any] = {
        "response_format": "verbose_json",
        "timestamp_granularities[]": ["word", "segment"],
    }
    body = post(server, long, **fields).json()
    assert body["duration"] > 30, "more than a window"
    assert body["language"] == "en"
    assert "".join(segment["text"] for segment in body["segments"]).strip() == body["text"]
    assert " ".join(word["word"] for word in body["words"]) == body["text"]
    ends = [0.0]
    for word in body["words"]:
        assert ends[-1] <= word["start"] < word["end"] <= body["duration"]
        assert 0 < word["probability"] <= 1
        ends.append(word["end"])
    for form, beginning in (("srt", "1\n00:00:"), ("vtt", "WEBVTT")):
        assert post(server, long, response_format=form).text.startswith(beginning)


def test_text_comes_while_the_file_is_transcribed(server: Server, long: bytes) -> None:
    answer = post(server, long, stream="true")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [event["delta"] for event in events if event["type"] == "transcript.text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == events[-1]["text"] == post(server, long).json()["text"]


def test_channels_and_silence(server: Server, lights: bytes, expected: str) -> None:
    samples = samples_of(lights)
    both = sound_file(np.stack((np.zeros_like(samples), samples), axis=1))
    body = post(server, both, multichannel="true", response_format="verbose_json").json()
    assert [channel["text"] for channel in body["channels"]] == ["", expected]
    quiet = post(server, sound_file(np.zeros(32_000, np.float32)), response_format="verbose_json").json()
    assert (quiet["text"], quiet["language"]) == ("", "")
    padded = sound_file(
        np.concatenate((np.zeros(160_000, np.float32), samples, np.zeros(160_000, np.float32)))
    )
    kept = post(server, padded, vad_filter="true", response_format="verbose_json").json()
    assert kept["duration"] == pytest.approx(20 + len(samples) / 16_000)
    assert all(
        9 < segment["start"] < segment["end"] < 11 + len(samples) / 16_000 for segment in kept["segments"]
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": "names"}, "prompt"),
        ({"keywords": "Anna"}, "keywords"),
        ({"temperature": "0.5"}, "temperature"),
        ({"beam_size": "3"}, "beam_size"),
        ({"numerals": "digits"}, "numerals"),
        ({"language": "de"}, "language"),
    ],
)
def test_what_it_cannot_do_is_refused(
    server: Server, lights: bytes, fields: dict[str, Any], param: str
) -> None:
    refused = post(server, lights, **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_it_does_not_translate(server: Server, lights: bytes) -> None:
    refused = post(server, lights, "translations")
    assert refused.status_code in (400, 404)
    assert "translat" in refused.json()["error"]["message"]


def test_a_live_turn_is_the_file_of_its_samples(server: Server, lights: bytes, expected: str) -> None:
    with raw_session(server.realtime) as session:
        session.configure(timestamp_granularities=["word"])
        audio = pcm(lights)
        for start in range(0, len(audio), 6_400):
            session.append_binary(audio[start : start + 6_400])
        session.commit()
        completed = session.until("completed")
        assert completed["transcript"] == expected
        assert " ".join(word["word"] for word in completed["words"]) == expected
    with raw_session(server.realtime) as session:
        session.configure(turn_detection={"type": "server_vad"})
        session.append_binary(audio + silence(1.0))
        completed = session.until("completed")
        commit = session.seen("committed")[0]
        first, last = (32 * commit[f"audio_{edge}_ms"] for edge in ("start", "end"))
        turn = np.frombuffer((audio + silence(1.0))[first:last], "<i2") / 32_768
        assert completed["transcript"] == post(server, sound_file(turn.astype(np.float32))).json()["text"]


def test_sdk_local_engine_and_command(
    server: Server, folder: Path, lights: bytes, expected: str, tmp_path: Path, run: Run
) -> None:
    with Client(server.url) as client:
        assert client.transcribe(lights).text == expected
        card = client.models()[0]
        assert card.abilities == ("transcribe",)
        assert list(card.languages or ()) == ["en"]
    with LocalEngine(str(folder), device="cpu", dtype="float32", num_threads=1) as engine:
        transcript = engine.transcribe(lights, timestamp_granularities=["word", "segment"])
        assert transcript.text == expected
        assert " ".join(word.word for word in transcript.words) == expected
    recording = tmp_path / "lights.wav"
    recording.write_bytes(lights)
    done = run("transcribe", str(recording), "--base-url", server.url, "--model", "parakeet")
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    listed = run("models", "--base-url", server.url)
    assert listed.stdout.startswith("parakeet: transcribe")
    load = ("--concurrency", "2", "--requests", "2", "--rounds", "1")
    measured = run("bench", str(recording), "--base-url", server.url, *load)
    assert measured.returncode == 0, measured.stderr
    assert "whole files" in measured.stdout
