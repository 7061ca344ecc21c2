"""Models of `transformers` that hear, over HTTP: one answer through every API, and transcripts of files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.media_families.transcribing import TRANSCRIBING
from support.media_family import make_media_folder
from support.server import Server, make_config, running_server

pytestmark = pytest.mark.slow

QUESTION = "What is to be heard?"
NAMES = [family.model_type for family in TRANSCRIBING]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    paths = [
        make_media_folder(folder / family.model_type, family, seed=index)
        for index, family in enumerate(TRANSCRIBING)
    ]
    with running_server(make_config(*map(str, paths))) as server:
        yield server


def post(server: Server, path: str, **body: object) -> dict[str, Any]:
    answer = httpx.post(f"{server.api}/{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def sound(data: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


@pytest.mark.parametrize("name", NAMES)
def test_chat_and_responses_answer_alike_and_count_tokens_of_audio(
    server: Server, lights: bytes, name: str
) -> None:
    engine = server.service.models[name].engine
    text = {"type": "text", "text": QUESTION}
    messages = [{"role": "user", "content": [sound(lights), text]}]
    answer = post(server, "chat/completions", model=name, messages=messages, max_tokens=8, temperature=0)
    details = answer["usage"]["prompt_tokens_details"]
    assert 0 < details["audio_tokens"] < answer["usage"]["prompt_tokens"]
    encoded = engine.statistics().num_windows_encoded
    content = [sound(lights), {"type": "input_text", "text": QUESTION}]
    given = [{"role": "user", "content": content}]
    response = post(server, "responses", model=name, input=given, max_output_tokens=8, temperature=0)
    said = "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )
    assert said == answer["choices"][0]["message"]["content"]
    assert engine.statistics().num_windows_encoded == encoded, "the same recording is encoded once"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_transcribed_by_the_model_s_own_prompt(server: Server, lights: bytes, name: str) -> None:
    def transcribe(**form: str) -> httpx.Response:
        files = {"file": ("a.wav", lights)}
        return httpx.post(
            f"{server.api}/audio/transcriptions", files=files, data={"model": name, **form}, timeout=60
        )

    plain = transcribe(response_format="verbose_json", temperature="0")
    assert plain.status_code == 200, plain.text
    assert plain.json()["duration"] > 1
    assert transcribe(response_format="text", temperature="0").text.strip() == plain.json()["text"].strip()
    refused = transcribe(prompt="Names: Ada.")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
    unknown = transcribe(language="sw")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "language")


def test_what_is_longer_than_the_model_takes_is_refused_by_its_limit(server: Server, lights: bytes) -> None:
    data = b"\0\0" * 16_000 * 700
    header = b"RIFF" + (36 + len(data)).to_bytes(4, "little") + lights[8:40] + len(data).to_bytes(4, "little")
    messages = [{"role": "user", "content": [sound(header + data)]}]
    body = {"model": "granite_speech", "messages": messages, "max_tokens": 2}
    refused = httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (413, "messages[0].content[0]"), error
    assert "takes up to 600 s at once" in error["message"]
