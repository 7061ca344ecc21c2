"""Translation, and several models in one server: a route exists where some model can answer it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from support.raw_socket import pcm, raw_session
from support.running_speech import random_folder
from support.server import Server, make_config, running_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(make_config("tiny-whisper", str(random_folder()))) as server:
        yield server
        server.wait_quiet()


def post(server: Server, route: str, data: bytes, **form: str) -> httpx.Response:
    return httpx.post(f"{server.api}/audio/{route}", files={"file": ("a.wav", data)}, data=form, timeout=60)


def test_a_model_that_translates(server: Server, lights: bytes) -> None:
    answer = post(server, "translations", lights, model="random-0", response_format="verbose_json")
    assert answer.status_code == 200
    assert answer.json()["task"] == "translate"


def test_a_session_that_translates(server: Server, lights: bytes) -> None:
    english = post(server, "translations", lights, model="random-0").json()["text"]
    assert english != post(server, "transcriptions", lights, model="random-0").json()["text"]
    with raw_session(server.realtime) as session:
        session.configure(model="random-0", task="translate")
        session.append(pcm(lights))
        session.commit()
        assert session.until("completed")["transcript"] == english


def test_a_model_that_does_not_is_named(server: Server, lights: bytes) -> None:
    answer = post(server, "translations", lights, model="tiny-whisper")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("model", "unsupported_task")
    assert "tiny-whisper" in error["message"]


def test_each_request_and_session_names_its_model(server: Server, lights: bytes) -> None:
    texts = {
        name: post(server, "transcriptions", lights, model=name).json()["text"]
        for name in server.service.models
    }
    assert list(texts) == ["tiny-whisper", "random-0"]
    assert texts["tiny-whisper"] != texts["random-0"]
    assert post(server, "transcriptions", lights).json()["text"] == texts["tiny-whisper"]
    for name in texts:
        with raw_session(f"{server.realtime}?model={name}") as session:
            session.configure()
            session.append(pcm(lights))
            session.commit()
            assert session.until("completed")["transcript"] == texts[name]
    with raw_session(server.realtime) as session:
        session.configure(model="random-0")
        session.append(pcm(lights))
        session.commit()
        assert session.until("completed")["transcript"] == texts["random-0"]


def test_both_are_in_the_metrics(server: Server) -> None:
    text = httpx.get(f"{server.url}/metrics").text
    for name in server.service.models:
        assert f'sensorium_kv_blocks{{model="{name}"}}' in text
