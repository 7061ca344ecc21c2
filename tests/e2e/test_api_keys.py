"""What separates the holders of different API keys, and what becomes of a request while the server stops."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sensorium.actors.config.server import ListenConfig
from support.server import Server, make_config, running_server, wait_until

pytestmark = pytest.mark.slow

PROMPT = "It was the best of times, it was the worst of times, " * 8
KEYS = ("alice", "bob")


@pytest.fixture
def server(folders: dict[str, Path]) -> Iterator[Server]:
    with running_server(
        make_config(str(folders["text"]), listen=ListenConfig(port=0, drain_s=5.0, api_key=KEYS))
    ) as server:
        yield server


def num_cached(server: Server, key: str, path: str = "completions", **more: object) -> int:
    prompt: dict[str, object] = {"prompt": PROMPT}
    if path.startswith("chat"):
        prompt = {"messages": [{"role": "user", "content": PROMPT}]}
    response = httpx.post(
        f"{server.api}/{path}",
        headers={"Authorization": f"Bearer {key}"} if key else {},
        json={"max_tokens": 1, "temperature": 0} | prompt | more,
        timeout=60,
    )
    found = response.raise_for_status().json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_a_key_finds_its_own_prompts_in_the_cache_and_nobody_elses(server: Server, path: str) -> None:
    assert num_cached(server, "alice", path) == 0
    assert num_cached(server, "alice", path) > 0
    assert num_cached(server, "bob", path) == 0
    assert num_cached(server, "bob", path) > 0
    assert num_cached(server, "alice", path, cache_salt="mine") == 0
    assert num_cached(server, "alice", path, cache_salt="mine") > 0
    assert num_cached(server, "bob", path, cache_salt="mine") == 0


def test_where_no_key_is_needed_everybody_shares(folders: dict[str, Path]) -> None:
    with running_server(make_config(str(folders["text"]))) as server:
        assert num_cached(server, "") == 0
        assert num_cached(server, "anything") > 0
        assert num_cached(server, "", cache_salt="mine") == 0


def test_a_streamed_request_that_was_arriving_when_the_server_stops_is_answered(server: Server) -> None:
    body = json.dumps({"prompt": PROMPT, "max_tokens": 4, "stream": True}).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(20)
        connection.sendall(head.encode() + body[:10])
        wait_until(lambda: server.service.num_requests == 1)
        server.run(server.stop.set)
        wait_until(lambda: server.service.is_draining)
        connection.sendall(body[10:])
        answer = b""
        while b"[DONE]" not in answer and (data := connection.recv(65_536)):
            answer += data
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"[DONE]" in answer
    assert b"error" not in answer
