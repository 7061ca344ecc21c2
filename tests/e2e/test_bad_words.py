"""`bad_words` and `no_repeat_ngram_size`: what may not come does not, by every way to ask."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sensorium import LocalEngine, SamplingOptions
from support.event_frames import event_frames
from support.server import Server, make_config, running_server

pytestmark = pytest.mark.slow

MESSAGES = [{"role": "user", "content": "What can you do?"}]
PLAIN = "I can tell you about simple shapes, colors, numbers and words in pictures and short clips."
WITHOUT = "I can tell you about simple colors, numbers and words in pictures and short clips."


@pytest.fixture(scope="module")
def seeing() -> Iterator[Server]:
    with running_server(make_config("tiny-qwen3-vl")) as server:
        yield server
        server.wait_quiet()


def chat(server: Server, **more: object) -> httpx.Response:
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 40, **more}
    return httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)


def texts(answer: httpx.Response) -> list[str]:
    return [choice["message"]["content"] for choice in answer.json()["choices"]]


def test_a_word_does_not_come_however_it_is_asked_for(seeing: Server) -> None:
    assert texts(chat(seeing)) == [PLAIN]
    ways: list[dict[str, Any]] = [
        {},
        {"n": 3},
        {"prediction": {"type": "content", "content": PLAIN}},
        {"speculative": {"num_speculative_tokens": 8}},
        {"structured_outputs": {"regex": "I can.*"}},
    ]
    for way in ways:
        answer = chat(seeing, bad_words=["shapes"], **way)
        assert texts(answer) == [WITHOUT] * way.get("n", 1)
    streamed = event_frames(chat(seeing, bad_words=["shapes"], stream=True).text)
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in streamed[:-1]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == WITHOUT
    with LocalEngine("tiny-qwen3-vl", device="cpu", dtype="float32", num_threads=1) as engine:
        for words in ("shapes", [" shapes"], ("shapes",)):
            assert engine.chat(MESSAGES, SamplingOptions(bad_words=words)).text == WITHOUT


def test_no_tokens_in_a_row_come_twice(seeing: Server) -> None:
    """Not those of the prompt, either: two in a row of `A A B` are `A A` and `A B`."""
    body: dict[str, Any] = {
        "prompt": "red red blue red",
        "max_tokens": 60,
        "ignore_eos": True,
        "temperature": 0,
        "return_token_ids": True,
    }

    def pairs(**more: object) -> list[tuple[int, int]]:
        url = f"{seeing.api}/completions"
        found = httpx.post(url, json=body | more, timeout=60).json()["choices"][0]
        token_ids = found["prompt_token_ids"] + found["token_ids"]
        return list(itertools.pairwise(token_ids))

    drafts = {"num_speculative_tokens": 8, "prompt_lookup_min": 1}
    assert len(set(pairs())) < len(pairs()), "it repeats itself if it may"
    found = pairs(no_repeat_ngram_size=2)
    in_prompt = found[: len(found) - 60]
    assert len(set(found)) == len(found) - (len(in_prompt) - len(set(in_prompt)))
    assert pairs(no_repeat_ngram_size=2, speculative=drafts) == found


def test_what_leaves_nothing_to_say_is_the_requests_own_fault(seeing: Server) -> None:
    [answer] = texts(chat(seeing, max_tokens=1))
    only = httpx.post(f"{seeing.url}/tokenize", json={"prompt": answer}).json()["tokens"]
    refused = chat(seeing, bad_words=[answer], allowed_token_ids=only)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "no_possible_token")
