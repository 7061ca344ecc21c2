"""`/tokenize` and `/detokenize`: the ids are those that are answered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.server import Server

pytestmark = pytest.mark.slow

PROMPT = "The quick brown fox jumps over"


def post(server: Server, path: str, **body: object) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=60)


def test_tokenize_and_detokenize(text_server: Server) -> None:
    for text in (PROMPT, "今日は 🎉"):
        found = post(text_server, "/tokenize", prompt=text, return_token_strs=True).json()
        assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
        assert post(text_server, "/detokenize", tokens=found["tokens"]).json() == {"prompt": text}


def test_a_conversation_is_tokenized_as_it_is_answered(text_server: Server) -> None:
    asked = {"messages": [{"role": "user", "content": "Hello"}]}
    for more in ({}, {"add_generation_prompt": False}):
        found = post(text_server, "/tokenize", **asked, **more).json()
        answer = post(
            text_server, "/v1/chat/completions", **asked, **more, max_tokens=1, return_token_ids=True
        ).json()
        assert found["tokens"] == answer["prompt_token_ids"]
        assert found["count"] == answer["usage"]["prompt_tokens"]


def test_what_a_tokenizer_puts_in_front_can_be_left_out(text_server: Server) -> None:
    whole = post(text_server, "/tokenize", prompt=PROMPT).json()["tokens"]
    bare = post(text_server, "/tokenize", prompt=PROMPT, add_special_tokens=False).json()["tokens"]
    assert whole[len(whole) - len(bare) :] == bare
    asked = {"prompt": PROMPT, "add_special_tokens": False, "max_tokens": 1, "return_token_ids": True}
    answer = post(text_server, "/v1/completions", **asked).json()
    assert answer["choices"][0]["prompt_token_ids"] == bare


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "tools": []}, "tools"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "a"}], "chat_template": "x"}, "chat_template"),
    ],
)
def test_what_cannot_be_tokenized_is_named(text_server: Server, body: dict[str, Any], param: str) -> None:
    answer = post(text_server, "/tokenize", **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_what_is_longer_than_the_context_can_be_counted(text_server: Server) -> None:
    """As clients do to know what to leave out."""
    text = f"{PROMPT} " * 200
    found = post(text_server, "/tokenize", prompt=text).json()
    assert found["count"] == len(found["tokens"]) > found["max_model_len"]
    assert post(text_server, "/detokenize", tokens=found["tokens"]).json() == {"prompt": text}
    messages = [{"role": "user", "content": text}]
    counts = [
        post(text_server, "/tokenize", messages=messages).json()["count"],
        post(text_server, "/v1/messages/count_tokens", messages=messages).json()["input_tokens"],
        post(text_server, "/v1/responses/input_tokens", input=text).json()["input_tokens"],
    ]
    assert len(set(counts)) == 1
    assert counts[0] > found["count"]
    refused = post(text_server, "/v1/chat/completions", messages=messages).json()["error"]
    assert refused["code"] == "context_length_exceeded"
    assert f"{counts[0]} tokens" in refused["message"]


def test_nothing_has_no_tokens(text_server: Server) -> None:
    assert post(text_server, "/detokenize", tokens=[]).json() == {"prompt": ""}
    assert post(text_server, "/tokenize", prompt="", add_special_tokens=False).json()["count"] == 0
