"""What chat frameworks send, replayed: `framework_requests.jsonl` has a request of each kind they make.

Recorded from the packages named there by `examples/interop/chat_frameworks.py`, which runs them as they are,
from Vercel's AI SDK (`ai`), with tools that are called in a first step, and from Codex and Claude Code, of
whose instructions and tools a part.
Here the model is a random one, so that its name and the limit of tokens are ours; all else is theirs.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response
from support.server import Server

pytestmark = pytest.mark.slow

RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("framework_requests.jsonl").read_text("utf-8").splitlines()
]
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
MOST = 16


def replay(server: Server, recorded: dict[str, Any]) -> httpx.Response:
    """The answer to a recorded request."""
    body = {**recorded["body"], "model": "chat"}
    body |= {name: MOST for name in LIMITS if name in body}
    if "previous_response_id" in body:
        first = httpx.post(f"{server.api}/responses", json={"input": "Hi", "max_output_tokens": 1})
        body["previous_response_id"] = first.json()["id"]
    return httpx.post(f"{server.url}{recorded['path']}", json=body, timeout=60)


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, in order."""
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in lines if line != "[DONE]"]


def check(recorded: dict[str, Any], answer: httpx.Response) -> None:
    """The answer is of the shape its sender reads."""
    assert answer.status_code == 200, (recorded["client"], answer.text)
    path, is_stream = recorded["path"], bool(recorded["body"].get("stream"))
    if path.endswith(("/count_tokens", "/input_tokens")):
        assert answer.json()["input_tokens"] > 0
    elif path == "/v1/completions":
        Completion.model_validate_json(answer.text, strict=True)
    elif path == "/v1/chat/completions" and is_stream:
        chunks = [ChatCompletionChunk.model_validate(each) for each in events(answer.text)]
        last = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1]
        assert last in ("length", "stop")  # what a random model draws may be its end
        includes_usage = (recorded["body"].get("stream_options") or {}).get("include_usage", False)
        assert (chunks[-1].usage is not None) == includes_usage
    elif path == "/v1/chat/completions":
        ChatCompletion.model_validate_json(answer.text, strict=True)
    elif path == "/v1/responses" and is_stream:
        found = events(answer.text)
        assert [each["sequence_number"] for each in found] == list(range(len(found)))
        Response.model_validate(found[-1]["response"])
    elif path == "/v1/responses":
        Response.model_validate_json(answer.text)
    elif is_stream:
        kinds = [each["type"] for each in events(answer.text)]
        assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    else:
        assert answer.json()["stop_reason"] in ("max_tokens", "end_turn")


def test_every_request_of_theirs_is_served(chat_server: Server) -> None:
    assert len(RECORDED) > 30
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda each: replay(chat_server, each), RECORDED))
    for recorded, answer in zip(RECORDED, answers, strict=True):
        check(recorded, answer)
