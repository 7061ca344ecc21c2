"""Names of models: aliases, none at all, and what the list of models says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from support.server import Server, make_config, running_server
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

ALIASES = ("whisper-1=tiny-whisper", "gpt-4o=tiny-qwen3-vl", "openai/gpt-4o=tiny-qwen3-vl")
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(replace(make_config("tiny-qwen3-vl", "tiny-whisper"), alias=ALIASES)) as server:
        yield server


def post(server: Server, path: str, **body: Any) -> Any:  # noqa: ANN401 (JSON)
    answer = httpx.post(f"{server.url}{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def session(server: Server, query: str, update: dict[str, Any]) -> list[dict[str, Any]]:
    """What a live session answers to an update, `session.created` first."""
    with connect(f"{server.realtime}{query}", open_timeout=60) as socket:
        socket.send(json.dumps({"type": "session.update", **update}))
        events = [json.loads(socket.recv(20))]
        while events[-1]["type"] not in ("session.updated", "error"):
            events.append(json.loads(socket.recv(20)))
        return [events[0], events[-1]]


def test_an_alias_is_listed_with_the_model_that_it_means(server: Server) -> None:
    listed = httpx.get(f"{server.api}/models").json()["data"]
    assert {card["id"]: card["root"] for card in listed} == {
        "tiny-qwen3-vl": "tiny-qwen3-vl",
        "tiny-whisper": "tiny-whisper",
        "whisper-1": "tiny-whisper",
        "gpt-4o": "tiny-qwen3-vl",
        "openai/gpt-4o": "tiny-qwen3-vl",
    }
    assert all(card["parent"] is None and card["max_model_len"] > 0 for card in listed)
    assert httpx.get(f"{server.api}/models/openai/gpt-4o").json() == listed[-1]


def test_an_alias_is_answered_by_its_model(server: Server, lights: bytes) -> None:
    assert post(server, "/v1/chat/completions", model="gpt-4o", **HELLO)["model"] == "tiny-qwen3-vl"
    address = f"{server.api}/audio/transcriptions"
    texts = [
        httpx.post(address, files={"file": lights}, data={"model": model}, timeout=60).json()["text"]
        for model in ("tiny-whisper", "whisper-1")
    ]
    assert texts[0] == texts[1]
    unknown = httpx.post(f"{server.api}/chat/completions", json={"model": "gpt-5", **HELLO})
    assert unknown.status_code == 404
    assert "whisper-1" in unknown.json()["error"]["message"]


def test_an_alias_opens_live_sessions_and_is_taken_by_them(server: Server) -> None:
    named = {"audio": {"input": {"transcription": {"model": "whisper-1"}}}}
    created, updated = session(server, "?model=whisper-1", {"session": named})
    assert created["session"]["type"] == "transcription"
    assert updated["session"]["audio"]["input"]["transcription"]["model"] == "tiny-whisper"
    created, updated = session(server, "?model=gpt-4o", {"session": {"model": "openai/gpt-4o", **named}})
    assert created["session"]["model"] == "tiny-qwen3-vl"
    assert updated["type"] == "session.updated"
    _, updated = session(server, "", {"model": "whisper-1"})
    assert updated["type"] == "session.updated"


def test_an_empty_name_is_none(server: Server) -> None:
    chat = post(server, "/v1/chat/completions", model="", **HELLO)
    assert chat["model"] == "tiny-qwen3-vl"
    assert post(server, "/v1/messages", model="", **HELLO)["model"] == "tiny-qwen3-vl"
    assert post(server, "/v1/responses", model="", input="Hello", max_output_tokens=16)["output"]
    assert post(server, "/v1/completions", model="", prompt="Hello", max_tokens=1)["choices"]
    assert post(server, "/tokenize", model="", prompt="Hello")["count"] > 0
    created, _ = session(server, "?model=", {"session": {"type": "realtime"}})
    assert created["session"]["type"] == "transcription"
