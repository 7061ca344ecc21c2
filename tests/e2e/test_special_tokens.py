"""`skip_special_tokens: false`: what a model writes beside text shows by its name, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium.engine.text.tokenizer import TextTokenizer
from support.server import Server

pytestmark = pytest.mark.slow

NAME = "<|im_start|>"
BODIES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "Hello"},
    "chat/completions": {"messages": [{"role": "user", "content": "Hello"}]},
}


@pytest.fixture
def ids(folders: dict[str, Path]) -> list[int]:
    """A special token, two letters."""
    text = TextTokenizer.from_folder(folders["text"])
    return [text.encode(each, allow_special=True)[0] for each in (NAME, "a", "b")]


def body_of(route: str, ids: list[int], **more: object) -> dict[str, Any]:
    sampling = {"allowed_token_ids": ids, "seed": 3, "temperature": 1.0, "ignore_eos": True, "max_tokens": 24}
    return {"model": "text", **BODIES[route], **sampling, "return_token_ids": True, **more}


def whole(server: Server, route: str, ids: list[int], **more: object) -> dict[str, Any]:
    answer = httpx.post(f"{server.api}/{route}", json=body_of(route, ids, **more), timeout=60)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def text_of(choice: dict[str, Any]) -> str:
    found: str = choice["text"] if "text" in choice else choice["message"]["content"]
    return found


def streamed(server: Server, route: str, ids: list[int], **more: object) -> Iterator[str]:
    body = body_of(route, ids, stream=True, **more)
    with httpx.stream("POST", f"{server.api}/{route}", json=body, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {") and (choices := json.loads(line[6:])["choices"]):
                delta = choices[0].get("delta", choices[0])
                yield delta.get("text") or delta.get("content") or ""


@pytest.mark.parametrize("route", BODIES)
def test_special_tokens_show_where_they_were_written(text_server: Server, ids: list[int], route: str) -> None:
    names = dict(zip(ids, (NAME, "a", "b"), strict=True))
    shown = whole(text_server, route, ids, skip_special_tokens=False)
    assert text_of(shown) == "".join(names[each] for each in shown["token_ids"])
    assert NAME in text_of(shown)
    assert "".join(streamed(text_server, route, ids, skip_special_tokens=False)) == text_of(shown)
    for hidden in ({}, {"skip_special_tokens": True}, {"skip_special_tokens": None}):
        plain = whole(text_server, route, ids, **hidden)
        assert plain["token_ids"] == shown["token_ids"]
        assert text_of(plain) == text_of(shown).replace(NAME, "")


@pytest.mark.parametrize("route", BODIES)
def test_a_stop_string_may_be_one(text_server: Server, ids: list[int], route: str) -> None:
    text = text_of(whole(text_server, route, ids, skip_special_tokens=False))
    stopped = whole(text_server, route, ids, skip_special_tokens=False, stop=[NAME])
    assert (text_of(stopped), stopped["finish_reason"]) == (text[: text.index(NAME)], "stop")
    assert "".join(streamed(text_server, route, ids, skip_special_tokens=False, stop=[NAME])) == text_of(
        stopped
    )
    assert text_of(whole(text_server, route, ids, stop=[NAME])) == text.replace(NAME, ""), "there is none"


def test_places_of_tokens_count_what_shows(text_server: Server, ids: list[int]) -> None:
    shown = whole(text_server, "completions", ids, skip_special_tokens=False, logprobs=0)
    places = shown["logprobs"]["text_offset"]
    tokens = shown["logprobs"]["tokens"]
    assert all(shown["text"][place:].startswith(token) for place, token in zip(places, tokens, strict=True))


def test_an_echo_shows_them_too(text_server: Server, ids: list[int]) -> None:
    prompt = {"prompt": ids, "echo": True}
    assert whole(text_server, "completions", ids, skip_special_tokens=False, **prompt)["text"].startswith(
        f"{NAME}ab"
    )
    assert whole(text_server, "completions", ids, **prompt)["text"].startswith("ab")
