"""Asking a model for what it cannot do is answered with what it can; other models are not affected."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sensorium.actors.config.server import EngineConfig
from support.raw_socket import raw_session
from support.running_speech import random_folder
from support.server import Server, make_config, running_server
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def mixed_server(folders: dict[str, Path]) -> Iterator[Server]:
    """A text model first, and two that transcribe, one of them English only."""
    engine = EngineConfig(device="cpu", num_threads=1, kv_memory="32MiB", max_running=8, kernels="default")
    english = str(random_folder(seed=9, multilingual=False))
    with running_server(make_config(str(folders["text"]), "tiny-whisper", english, engine=engine)) as server:
        yield server


@pytest.fixture(scope="module")
def plain_server(folders: dict[str, Path]) -> Iterator[Server]:
    """A text model alone."""
    engine = EngineConfig(device="cpu", num_threads=1, kv_memory="32MiB", max_running=8, kernels="default")
    with running_server(make_config(str(folders["text"]), engine=engine)) as server:
        yield server


def transcribe(server: Server, audio: bytes, model: str | None = None) -> httpx.Response:
    fields = {} if model is None else {"model": model}
    url = f"{server.api}/audio/transcriptions"
    return httpx.post(url, files={"file": ("a.wav", audio)}, data=fields, timeout=60)


def test_a_server_without_a_transcribing_model_has_no_such_route(plain_server: Server, lights: bytes) -> None:
    answer = transcribe(plain_server, lights)
    assert answer.status_code == 404
    assert "for the models served here" in answer.json()["error"]["message"]


def test_transcribing_sessions_need_a_transcribing_model(text_server: Server, mixed_server: Server) -> None:
    """Without the intent, the session is one that answers."""
    for server in (text_server, mixed_server):
        with connect(f"{server.realtime}?model=text") as session:
            assert json.loads(session.recv(20))["session"]["type"] == "realtime"
        with connect(f"{server.realtime}?model=text&intent=transcription") as session:
            error = json.loads(session.recv(20))["error"]
            assert error["code"] == "unsupported_task"
            assert "cannot transcribe here; it can complete, chat" in error["message"]
            with pytest.raises(ConnectionClosed) as closed:
                session.recv(20)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008


def test_each_model_does_what_it_can(mixed_server: Server, lights: bytes) -> None:
    listed = httpx.get(f"{mixed_server.api}/models").json()["data"]
    assert [model["id"] for model in listed] == ["text", "tiny-whisper", "random-9"]
    assert [model["abilities"] for model in listed] == [["complete", "chat"], ["transcribe"], ["transcribe"]]
    assert [model["input_modalities"] for model in listed] == [["text"], ["audio"], ["audio"]]
    assert [model.get("languages") for model in listed] == [None, ["de", "en", "es"], ["en"]]
    refused = transcribe(mixed_server, lights, "text")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "model"
    assert "it can complete, chat" in refused.json()["error"]["message"]
    named = transcribe(mixed_server, lights, "tiny-whisper")
    assert named.status_code == 200
    assert transcribe(mixed_server, lights).json() == named.json(), "the first that can is the default"
    with connect(f"{mixed_server.realtime}?model=tiny-whisper") as session:
        assert json.loads(session.recv(20))["type"] == "session.created"


def test_an_english_only_model_takes_english_live_and_no_other_language(mixed_server: Server) -> None:
    with raw_session(f"{mixed_server.realtime}?model=random-9") as session:
        session.configure(language="en", languages=["en"])
        for field, value in (("language", "de"), ("languages", ["en", "de"])):
            audio = {"input": {"transcription": {field: value}}}
            session.send({"type": "session.update", "session": {"type": "transcription", "audio": audio}})
            error = session.receive()["error"]
            assert error["code"] == "unsupported_language"
            assert error["param"].startswith(f"session.audio.input.transcription.{field}")


def test_new_counters_are_exported(mixed_server: Server) -> None:
    body = {"model": "text", "prompt": "The same words again and again.", "max_tokens": 8}
    for _ in range(2):
        httpx.post(f"{mixed_server.api}/completions", json=body, timeout=60).raise_for_status()
    lines = httpx.get(f"{mixed_server.url}/metrics").text.splitlines()
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}
    for name in (
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "session_evictions_total",
        "draft_tokens_total",
        "draft_accepted_total",
        "encoder_cache_hits_total",
        "encoder_cache_misses_total",
        "encoder_cache_bytes",
        "kv_blocks_cached",
        "sessions_parked",
    ):
        assert f'sensorium_{name}{{model="text"}}' in values
    for service in ("live", "interactive", "batch"):
        assert f'sensorium_preemptions_total{{model="text",service="{service}"}}' in values
    assert values['sensorium_prefix_cache_queries_total{model="text"}'] > 0
