"""Transcripts through chat and responses: greedy unless the request says otherwise, and refusals by name."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.server import Server, make_config, running_server

pytestmark = pytest.mark.slow

MODEL = "tiny-qwen3-asr"
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Its generation_config.json says nothing of sampling."""
    with running_server(make_config(MODEL)) as server:
        yield server


@pytest.fixture(scope="module")
def sound(lights: bytes) -> dict[str, Any]:
    data = base64.b64encode(lights).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def chat(server: Server, *messages: dict[str, Any], **options: object) -> httpx.Response:
    body = {"model": MODEL, "messages": messages, **options}
    return httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)


def transcript(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["choices"][0]["message"]["content"]
    return found


def test_a_request_that_says_nothing_of_sampling_is_greedy(server: Server, sound: dict[str, Any]) -> None:
    user = {"role": "user", "content": [sound]}
    greedy = transcript(chat(server, user, temperature=0))
    assert {transcript(chat(server, user)) for _ in range(4)} == {greedy}
    body = {"model": MODEL, "input": [{"role": "user", "content": [sound]}]}
    found = {httpx.post(f"{server.api}/responses", json=body, timeout=60).text for _ in range(2)}
    assert all(greedy.split("<asr_text>")[-1] in each for each in found)
    assert len({transcript(chat(server, user, temperature=2, seed=seed)) for seed in range(4)}) > 1


def test_the_beginning_of_the_answer_forces_a_language(server: Server, sound: dict[str, Any]) -> None:
    user = {"role": "user", "content": [sound]}
    begun = {"role": "assistant", "content": "language English<asr_text>"}
    forced = chat(server, user, begun, **CONTINUED)
    assert forced.json()["usage"]["prompt_tokens"] > chat(server, user).json()["usage"]["prompt_tokens"]
    assert transcript(forced) == transcript(chat(server, user, chat_template_kwargs={"language": "en"}))


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_what_would_be_dropped_is_refused(server: Server, sound: dict[str, Any], role: str) -> None:
    answer = chat(server, {"role": "user", "content": [sound]}, {"role": role, "content": "Write it down."})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("messages[1]")
