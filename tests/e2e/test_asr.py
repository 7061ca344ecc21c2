"""A Qwen3-ASR folder is served like Whisper is: files in every format, streams, and live turns."""

from __future__ import annotations

import json

import httpx
import pytest
from support.raw_socket import pcm, raw_session
from support.server import Server

pytestmark = pytest.mark.slow


def transcribe(server: Server, audio: bytes, **fields: object) -> httpx.Response:
    answer = httpx.post(
        f"{server.api}/audio/transcriptions",
        files={"file": ("a.wav", audio)},
        data={"model": "audio", **fields},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return answer


def test_files_in_every_format(text_server: Server, lights: bytes) -> None:
    answer = transcribe(text_server, lights).json()
    text, usage = answer["text"], answer["usage"]
    assert text
    assert sum(usage["input_token_details"].values()) == usage["input_tokens"]
    assert usage["input_token_details"]["audio_tokens"] > 0
    assert transcribe(text_server, lights, response_format="text").text == text + "\n"
    verbose = transcribe(text_server, lights, response_format="verbose_json").json()
    assert verbose["text"] == text
    assert verbose["segments"]
    assert all(0 <= each["start"] <= each["end"] <= verbose["duration"] for each in verbose["segments"])
    assert "-->" in transcribe(text_server, lights, response_format="srt").text
    assert transcribe(text_server, lights, response_format="vtt").text.startswith("WEBVTT")
    events = [
        json.loads(line.removeprefix("data: "))
        for line in transcribe(text_server, lights, stream="true").text.splitlines()
        if line.startswith("data: {")
    ]
    assert "".join(event["delta"] for event in events[:-1]) == events[-1]["text"] == text


def test_what_it_cannot_do_names_the_field(text_server: Server, lights: bytes) -> None:
    for path, fields, param in (
        ("transcriptions", {"language": "xx"}, "language"),
        ("transcriptions", {"model": "text"}, "model"),
    ):
        answer = httpx.post(
            f"{text_server.api}/audio/{path}",
            files={"file": ("a.wav", lights)},
            data={"model": "audio", **fields},
        )
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_live_turn_ends_in_the_files_transcript(text_server: Server, lights: bytes) -> None:
    text = transcribe(text_server, lights).json()["text"]
    with raw_session(f"{text_server.realtime}?model=audio") as session:
        session.configure()
        audio = pcm(lights)
        for start in range(0, len(audio), 16_000):
            session.append_binary(audio[start : start + 16_000])
        session.commit()
        completed = session.until("completed", timeout_s=60)
        assert completed["transcript"] == text
        assert "<asr_text>" not in session.deltas(completed["item_id"])
