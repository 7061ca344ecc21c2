"""A server whose engines are in another process answers as one whose engines are its own."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from sensorium.actors.config.server import EngineConfig, ProcessConfig
from sensorium.actors.engine_process.client import RemoteEngine
from sensorium.actors.engine_process.process import EngineProcess
from sensorium.actors.engines import Engines
from sensorium.actors.inference.client import EngineClient
from sensorium.actors.replicas.processes import SingleProcess
from sensorium.actors.served_model import LoadedModel
from sensorium.actors.worker_config import orders_of
from sensorium.engine.models.embedded import embedded_folder
from sensorium.media.speech.voice_activity import VoiceActivityModel
from support.raw_socket import RawSession, pcm, raw_session
from support.server import Server, make_config, running_server, wait_until
from support.transcripts import exact
from support.vision_files import png

pytestmark = pytest.mark.slow

SPEECH = ("tiny-whisper", "tiny-qwen3-asr")
ELSEWHERE = Path(__file__).parents[1] / "support" / "elsewhere.py"
PICTURE = {
    "model": "vision",
    "messages": [
        {
            "role": "user",
            "content": [
                {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png(40, 48)).decode()}"},
                },
                {"type": "text", "text": "What is it?"},
            ],
        }
    ],
    "n": 2,
    "logprobs": True,
}
ENGINE = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="32MiB", max_running=8)


@pytest.fixture(scope="module")
def direct(folders: dict[str, Path]) -> Iterator[Server]:
    with running_server(make_config(*SPEECH, str(folders["vision"]), engine=ENGINE)) as server:
        yield server
        server.wait_quiet()


@pytest.fixture(scope="module")
def remote(folders: dict[str, Path]) -> Iterator[Server]:
    config = make_config(
        *SPEECH, str(folders["vision"]), engine=ENGINE, process=ProcessConfig(engine_process="on")
    )
    with running_server(config) as server:
        assert all(isinstance(model.engine, RemoteEngine) for model in server.service.models.values())
        yield server
        server.wait_quiet()


def transcribe(server: Server, audio: bytes, **fields: object) -> httpx.Response:
    url, files = f"{server.api}/audio/transcriptions", {"file": ("a.wav", audio)}
    return httpx.post(url, files=files, data=fields, timeout=60)


def chat(server: Server, **body: object) -> httpx.Response:
    request = {"max_tokens": 8, "temperature": 0, **body}
    return httpx.post(f"{server.api}/chat/completions", json=request, timeout=60)


@pytest.fixture
def elsewhere(folders: dict[str, Path], tmp_path: Path) -> Iterator[Server]:
    """Its engines' process finds the checkpoints; the process that faces clients does not."""
    for name in (*SPEECH, "vision"):
        shutil.copytree(embedded_folder(name) or folders[name], tmp_path / "models" / name)
    names = (*SPEECH, "vision")
    models = tuple(f"models/{name}" for name in names)
    config = make_config(*models, engine=ENGINE, process=ProcessConfig(engine_process="on"))
    config = replace(config, served_model_names=names)
    command = (sys.executable, str(ELSEWHERE), str(tmp_path))
    processes = SingleProcess(EngineProcess(orders_of(config), silence_s=60, command=command))

    async def start(
        actors: trio.Nursery, activity: VoiceActivityModel
    ) -> Sequence[LoadedModel[EngineClient]]:
        return await Engines(config, lambda: None, processes=processes).start(actors, activity)

    with running_server(config, start=start) as server:
        assert all(not (Path.cwd() / model).exists() for model in models)
        yield server
        server.wait_quiet()


def test_a_front_without_the_checkpoints_serves(
    direct: Server, elsewhere: Server, conversation: bytes
) -> None:
    """Tokenizers, templates, features and pixels are of files that the models' process sends."""
    for model in SPEECH:
        answers = [
            transcribe(server, conversation, response_format="verbose_json", model=model).json()
            for server in (direct, elsewhere)
        ]
        assert exact(answers[0]) == exact(answers[1])
    bodies = [chat(server, **PICTURE) for server in (direct, elsewhere)]
    assert bodies[1].status_code == 200, bodies[1].text
    assert without_names(bodies[0].json()) == without_names(bodies[1].json())


def without_names(body: dict[str, Any]) -> dict[str, Any]:
    """What two answers to one question have in common."""
    return {name: value for name, value in body.items() if name not in ("id", "created", "usage")}


@pytest.mark.parametrize("model", SPEECH)
def test_files(direct: Server, remote: Server, conversation: bytes, model: str) -> None:
    request = {"response_format": "verbose_json", "timestamp_granularities[]": "word", "model": model}
    answers = [transcribe(server, conversation, **request).json() for server in (direct, remote)]
    assert answers[0]["words"]
    assert exact(answers[0]) == exact(answers[1])


@pytest.mark.parametrize("model", SPEECH)
def test_live_turns(direct: Server, remote: Server, lights: bytes, model: str) -> None:
    audio = pcm(lights)
    transcripts = []
    for server in (direct, remote):
        with raw_session(f"{server.realtime}?model={model}") as session:
            session.configure()
            for start in range(0, len(audio), 16_000):
                session.append_binary(audio[start : start + 16_000])
            session.commit()
            transcripts.append(session.until("completed")["transcript"])
            assert session.deltas(session.seen("completed")[0]["item_id"])
    assert transcripts[0] == transcripts[1] == transcribe(remote, lights, model=model).json()["text"]


def test_pictures(direct: Server, remote: Server) -> None:
    answers = [chat(server, **PICTURE) for server in (direct, remote)]
    assert answers[1].status_code == 200, answers[1].text
    assert without_names(answers[0].json()) == without_names(answers[1].json())
    assert without_names(chat(remote, **PICTURE).json()) == without_names(answers[0].json())


def test_faults_are_the_clients_or_ours_on_either_side(direct: Server, remote: Server) -> None:
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}
    for body, code in (
        ({"stop": [""]}, "invalid_value"),
        ({"response_format": schema}, "invalid_value"),
        ({"structured_outputs": {"regex": "abc"}, "allowed_token_ids": [5]}, "no_possible_token"),
    ):
        request = {"model": "vision", "messages": [{"role": "user", "content": "x"}], **body}
        answers = [chat(server, **request) for server in (direct, remote)]
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


def engine_process() -> int:
    """The child of this process that runs engines."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = path.read_text().rsplit(")", 1)
            if int(rest.split()[1]) == os.getpid() and name.endswith("(sensorium-model"):
                return int(path.parent.name)
    raise AssertionError("there is none")


def speak(session: RawSession, audio: bytes) -> None:
    """All of it; the end of the turn is to come."""
    for start in range(0, len(audio), 8_000):
        session.append_binary(audio[start : start + 8_000])


def test_the_process_is_killed_under_live_sessions(remote: Server, lights: bytes) -> None:
    """Turns that end meanwhile are answered when it is back; other requests are told when to come back."""
    text = transcribe(remote, lights).json()["text"]
    audio, before = pcm(lights), remote.statistics()
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(raw_session(f"{remote.realtime}?model={model}")) for model in SPEECH * 2
        ]
        for session in sessions:
            session.configure()
            speak(session, audio[: len(audio) // 16_000 * 8_000])
        os.kill(engine_process(), signal.SIGKILL)
        for session in sessions:
            session.commit()
        failed = transcribe(remote, lights)
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "engine_unavailable")
        assert int(failed.headers["retry-after"]) >= 1
        health = httpx.get(f"{remote.url}/health")
        assert health.status_code == 503
        assert set(health.json()["models"].values()) == {"restarting"}
        halves = [session.until("completed")["transcript"] for session in sessions]
        wait_until(lambda: httpx.get(f"{remote.url}/health").status_code == 200, timeout_s=60)
        for session in sessions:
            for part in (audio[: len(audio) // 16_000 * 8_000], audio):
                speak(session, part)
                session.commit()
        assert [session.until("completed")["transcript"] for session in sessions] == halves
        assert {session.until("completed")["transcript"] for session in sessions} == {text}
    assert transcribe(remote, lights).json()["text"] == text
    after = remote.statistics()
    assert after.num_restarts == before.num_restarts + 1
    assert after.num_windows_encoded > before.num_windows_encoded, "counters go on"
    assert "sensorium_engine_process_restarts_total 1.0" in httpx.get(f"{remote.url}/metrics").text
