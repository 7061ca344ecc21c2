"""A server whose engines are behind a wire answers as one whose engines are its own: what crosses is data."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sensorium.actors.models as models_module
from sensorium.actors.config import EngineConfig
from sensorium.actors.engine.engine import Engine
from sensorium.engine.execution.runner import Runner
from support.raw_socket import pcm, raw_session
from support.remote_engine import RemoteEngine
from support.server import Server, make_config, running_server, wait_until
from support.vision_files import png

pytestmark = pytest.mark.slow

SPEECH = ("tiny-whisper", "tiny-qwen3-asr")
ENGINE = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="32MiB", max_running=8)


@pytest.fixture(scope="module")
def direct(folders: dict[str, Path]) -> Iterator[Server]:
    with running_server(make_config(*SPEECH, str(folders["vision"]), engine=ENGINE)) as server:
        yield server
        server.wait_quiet()


@pytest.fixture(scope="module")
def remote(folders: dict[str, Path]) -> Iterator[Server]:
    def behind_a_wire(*args: Any, **options: Any) -> RemoteEngine:  # noqa: ANN401 (Engine's)
        return RemoteEngine(Engine(*args, **options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models_module, "Engine", behind_a_wire)
        with running_server(make_config(*SPEECH, str(folders["vision"]), engine=ENGINE)) as server:
            assert all(isinstance(model.engine, RemoteEngine) for model in server.service.models.values())
            yield server
            server.wait_quiet()


def transcribe(server: Server, audio: bytes, **fields: object) -> httpx.Response:
    url, files = f"{server.api}/audio/transcriptions", {"file": ("a.wav", audio)}
    return httpx.post(url, files=files, data=fields, timeout=60)


def chat(server: Server, **body: object) -> httpx.Response:
    asked = {"max_tokens": 8, "temperature": 0, **body}
    return httpx.post(f"{server.api}/chat/completions", json=asked, timeout=30)


def without_names(body: dict[str, Any]) -> dict[str, Any]:
    """What two answers to one question have in common."""
    return {name: value for name, value in body.items() if name not in ("id", "created", "usage")}


@pytest.mark.parametrize("model", SPEECH)
def test_files(direct: Server, remote: Server, conversation: bytes, model: str) -> None:
    asked = {"response_format": "verbose_json", "timestamp_granularities[]": "word", "model": model}
    answers = [transcribe(server, conversation, **asked).json() for server in (direct, remote)]
    assert answers[0]["words"]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("model", SPEECH)
def test_live_turns(direct: Server, remote: Server, lights: bytes, model: str) -> None:
    audio = pcm(lights)
    said = []
    for server in (direct, remote):
        with raw_session(f"{server.realtime}?model={model}") as session:
            session.configure()
            for start in range(0, len(audio), 16_000):
                session.append_binary(audio[start : start + 16_000])
            session.commit()
            said.append(session.until("completed")["transcript"])
            assert session.deltas(session.seen("completed")[0]["item_id"])
    assert said[0] == said[1] == transcribe(remote, lights, model=model).json()["text"]


def test_pictures(direct: Server, remote: Server) -> None:
    picture = {"url": f"data:image/png;base64,{base64.b64encode(png(40, 48)).decode()}"}
    parts = [{"type": "image_url", "image_url": picture}, {"type": "text", "text": "What is it?"}]
    body = {"model": "vision", "messages": [{"role": "user", "content": parts}], "n": 2, "logprobs": True}
    answers = [chat(server, **body) for server in (direct, remote)]
    assert answers[1].status_code == 200, answers[1].text
    assert without_names(answers[0].json()) == without_names(answers[1].json())
    engine = remote.service.models["vision"].engine
    assert isinstance(engine, RemoteEngine)
    before = engine.num_features_sent
    assert before == 1
    assert without_names(chat(remote, **body).json()) == without_names(answers[0].json())
    assert engine.num_features_sent == before, "the engine had them"


def test_faults_are_the_clients_or_ours_on_either_side(direct: Server, remote: Server) -> None:
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}
    for body, code in (
        ({"stop": [""]}, "invalid_value"),
        ({"response_format": schema}, "invalid_value"),
        ({"structured_outputs": {"regex": "abc"}, "allowed_token_ids": [5]}, "no_possible_token"),
    ):
        asked = {"model": "vision", "messages": [{"role": "user", "content": "x"}], **body}
        answers = [chat(server, **asked) for server in (direct, remote)]
        assert answers[0].json() == answers[1].json()
        assert [answer.status_code for answer in answers] == [400, 400]
        assert answers[1].json()["error"]["code"] == code


def test_clients_that_leave_leave_nothing(remote: Server) -> None:
    body = {"model": "vision", "messages": [{"role": "user", "content": "x"}], "max_tokens": 300}
    with (
        httpx.Client() as client,
        client.stream("POST", f"{remote.api}/chat/completions", json={**body, "stream": True}) as answer,
    ):
        next(answer.iter_lines())
    remote.wait_quiet()


def test_a_restart(remote: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(self: Runner, plan: object) -> None:
        raise RuntimeError("the device is gone")

    text = transcribe(remote, lights).json()["text"]
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "execute", explode)
        failed = transcribe(remote, lights)
    assert (failed.status_code, failed.json()["error"]["code"]) == (503, "unavailable")
    wait_until(lambda: httpx.get(f"{remote.url}/health").status_code == 200)
    assert transcribe(remote, lights).json()["text"] == text
