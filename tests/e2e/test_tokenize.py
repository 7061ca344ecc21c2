"""`/tokenize` and `/detokenize`: the ids are those that are answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium.engine.text.tokenizer import TextTokenizer
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
    conversation = {"messages": [{"role": "user", "content": "Hello"}]}
    for more in ({}, {"add_generation_prompt": False}):
        found = post(text_server, "/tokenize", **conversation, **more).json()
        answer = post(
            text_server, "/v1/chat/completions", **conversation, **more, max_tokens=1, return_token_ids=True
        ).json()
        assert found["tokens"] == answer["prompt_token_ids"]
        assert found["count"] == answer["usage"]["prompt_tokens"]


def test_what_a_tokenizer_puts_in_front_can_be_left_out(text_server: Server) -> None:
    whole = post(text_server, "/tokenize", prompt=PROMPT).json()["tokens"]
    bare = post(text_server, "/tokenize", prompt=PROMPT, add_special_tokens=False).json()["tokens"]
    assert whole[len(whole) - len(bare) :] == bare
    conversation = {"prompt": PROMPT, "add_special_tokens": False, "max_tokens": 1, "return_token_ids": True}
    answer = post(text_server, "/v1/completions", **conversation).json()
    assert answer["choices"][0]["prompt_token_ids"] == bare


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "tools": []}, "tools"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "a"}], "documents": [{"text": "b"}]}, "documents"),
        ({"prompt": "a", "documents": []}, "documents"),
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


def test_the_names_of_tokens_are_the_vocabularys_pieces(
    text_server: Server, folders: dict[str, Path]
) -> None:
    backend = TextTokenizer.from_folder(folders["text"]).backend
    found = post(text_server, "/tokenize", prompt="it is 🎉 é", return_token_strs=True).json()
    assert found["token_strs"] == [backend.id_to_token(each) for each in found["tokens"]]
    assert backend.decoder.decode(found["token_strs"]) == "it is 🎉 é"


def test_the_tokenizers_config_is_told(text_server: Server, folders: dict[str, Path]) -> None:
    found = httpx.get(f"{text_server.url}/tokenizer_info", params={"model": "text"}).json()
    assert found["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert found == json.loads((folders["text"] / "tokenizer_config.json").read_text())
    assert httpx.get(f"{text_server.url}/tokenizer_info", params={"model": "nothing"}).status_code == 404


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_what_vllm_writes_as_null_is_null(text_server: Server, route: str) -> None:
    conversation = (
        {"prompt": "a"} if route == "completions" else {"messages": [{"role": "user", "content": "a"}]}
    )
    answer = post(text_server, f"/v1/{route}", model="text", max_tokens=1, **conversation).json()
    assert answer["choices"][0]["token_ids"] is None
    for key in ("prompt_logprobs", "prompt_token_ids"):
        assert (answer["choices"][0] if route == "completions" else answer)[key] is None


def test_nothing_has_no_tokens(text_server: Server) -> None:
    assert post(text_server, "/detokenize", tokens=[]).json() == {"prompt": ""}
    assert post(text_server, "/tokenize", prompt="", add_special_tokens=False).json()["count"] == 0
