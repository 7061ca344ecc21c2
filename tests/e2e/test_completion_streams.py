"""What a streamed completion says of its tokens is what the whole says."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from support.server import Server

pytestmark = pytest.mark.slow

BODY: dict[str, Any] = {"model": "text", "temperature": 0, "max_tokens": 3}


def post(server: Server, body: dict[str, Any]) -> httpx.Response:
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def whole(server: Server, **more: object) -> list[dict[str, Any]]:
    choices: list[dict[str, Any]] = post(server, BODY | more).json()["choices"]
    return choices


def streamed(server: Server, **more: object) -> list[dict[str, Any]]:
    """The choices of all chunks."""
    lines = post(server, BODY | {"stream": True} | more).text.splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
    return [choice for each in data for choice in json.loads(each)["choices"]]


def test_offsets_are_those_of_the_whole(text_server: Server) -> None:
    """Also where text is held back, which may be the beginning of a stop string."""
    options: dict[str, Any] = {
        "prompt": ["The quick brown fox", "Hi"],
        "n": 2,
        "max_tokens": 8,
        "logprobs": 1,
    }
    text = "".join(choice["text"] for choice in whole(text_server, **options))
    options["stop"] = [f"{character} and never this" for character in sorted(set(text))][:16]
    offsets: list[list[int]] = [[], [], [], []]
    for choice in streamed(text_server, **options):
        if choice["logprobs"] is not None:
            offsets[choice["index"]] += choice["logprobs"]["text_offset"]
    assert offsets == [choice["logprobs"]["text_offset"] for choice in whole(text_server, **options)]
    assert any(offsets)


def test_an_echo_alone_is_the_same(text_server: Server) -> None:
    options = {"prompt": "Hi there", "max_tokens": 0, "echo": True, "return_token_ids": True}
    (answer,) = whole(text_server, **options)
    assert answer.pop("prompt_logprobs") is None  # of whole bodies only
    assert streamed(text_server, **options, stop=[" there"]) == [answer]


@pytest.mark.parametrize("options", [[5], [5, 7], []])
def test_the_token_that_ended_an_answer_is_told_where_it_was_asked_for(
    text_server: Server, options: list[int]
) -> None:
    body = {"prompt": "Hi", "logit_bias": {"5": 100}, "stop_token_ids": options}
    expected = 5 if options else None
    assert [choice["stop_reason"] for choice in whole(text_server, **body)] == [expected]
    assert streamed(text_server, **body)[-1]["stop_reason"] == expected
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, **body}
    del chat["prompt"]
    answer = httpx.post(f"{text_server.api}/chat/completions", json=chat, timeout=60).json()
    assert answer["choices"][0]["stop_reason"] == expected
