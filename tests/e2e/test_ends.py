"""What ends an answer is in its token ids and its count: a stop token, or the tokens of a stop string."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium.engine.text.tokenizer import TextTokenizer
from support.server import Server

pytestmark = pytest.mark.slow

Ask = Callable[..., tuple[list[int], list[str], str, int]]

BODIES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "Hello", "logprobs": 1},
    "chat/completions": {
        "messages": [{"role": "user", "content": "Hello"}],
        "logprobs": True,
        "top_logprobs": 1,
    },
}


@pytest.fixture(scope="session")
def text(folders: dict[str, Path]) -> TextTokenizer:
    return TextTokenizer.from_folder(folders["text"])


@pytest.fixture(scope="session")
def end(folders: dict[str, Path]) -> int:
    """The model's own."""
    return int(json.loads((folders["text"] / "generation_config.json").read_text())["eos_token_id"][0])


def post(server: Server, route: str, **body: object) -> dict[str, Any]:
    answer = httpx.post(f"{server.api}/{route}", json={"model": "text", **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def whole(server: Server, route: str, **body: object) -> tuple[list[int], list[str], str, int]:
    """Ids, the names that have log-probabilities, text, and how many tokens are counted."""
    found = post(server, route, **BODIES[route], **body)
    choice = found["choices"][0]
    content = choice["text"] if "text" in choice else choice["message"]["content"]
    return choice.get("token_ids", []), names(choice), content, found["usage"]["completion_tokens"]


def names(choice: dict[str, Any]) -> list[str]:
    told = choice["logprobs"] or {"tokens": []}
    return list(told["tokens"]) if "tokens" in told else [each["token"] for each in told["content"]]


def streamed(server: Server, route: str, **body: object) -> tuple[list[int], list[str], str, int]:
    """The same of a stream."""
    ids: list[int] = []
    scored: list[str] = []
    content, count = "", 0
    options = {"stream": True, "stream_options": {"include_usage": True}}
    body = {"model": "text", **BODIES[route], **options, **body}
    with httpx.stream("POST", f"{server.api}/{route}", json=body, timeout=60) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            count = (chunk["usage"] or {"completion_tokens": 0})["completion_tokens"]
            for choice in chunk["choices"]:
                delta = choice.get("delta", choice)
                content += delta.get("text") or delta.get("content") or ""
                ids += choice.get("token_ids") or []
                scored += names(choice)
    return ids, scored, content, count


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("route", BODIES)
def test_a_stop_token_is_in_the_ids_and_the_count(
    text_server: Server, text: TextTokenizer, end: int, route: str, ask: Ask
) -> None:
    (a,) = text.encode("a", allow_special=True)
    name_of = {end: text.backend.id_to_token(end), a: "a"}
    for stop, options in (
        (end, {"min_tokens": 2, "allowed_token_ids": [a, end], "logit_bias": {str(end): 100}}),
        (a, {"min_tokens": 0, "allowed_token_ids": [a], "stop_token_ids": [a], "ignore_eos": True}),
    ):
        before = [a] * int(options["min_tokens"])
        ids, scored, content, count = ask(text_server, route, max_tokens=9, return_token_ids=True, **options)
        assert ids == [*before, stop]
        assert scored == [name_of[each] for each in ids]
        assert (content, count) == ("a" * len(before), len(ids))
        # Who asks for no ids has OpenAI's log-probabilities: those of the text.
        none, scored, again, count = ask(text_server, route, max_tokens=9, **options)
        assert (none, scored, again, count) == ([], ["a"] * len(before), content, len(ids))


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize("includes", [False, True])
def test_the_tokens_of_a_stop_string_are_in_the_ids_and_the_count(
    text_server: Server, text: TextTokenizer, route: str, ask: Ask, includes: bool
) -> None:
    a, b = (text.encode(each, allow_special=True)[0] for each in "ab")
    options = {"allowed_token_ids": [a, b], "seed": 5, "temperature": 1.0, "ignore_eos": True}
    options |= {"max_tokens": 12, "return_token_ids": True}
    free, _, all_text, _ = ask(text_server, route, **options)
    stop = all_text[4:7]
    place = all_text.index(stop)
    ids, scored, content, count = ask(
        text_server, route, stop=[stop], include_stop_str_in_output=includes, **options
    )
    assert ids == free[: place + 3]
    assert "".join(scored) == all_text[: place + 3]
    assert (content, count) == (all_text[: place + 3 if includes else place], place + 3)


@pytest.mark.parametrize("stream", [False, True])
def test_responses_count_the_end(text_server: Server, stream: bool) -> None:
    form = {"structured_outputs": {"regex": "a{8}"}, "stop": "aaa"}
    body = {"model": "text", "input": "Hello", "max_output_tokens": 9, "stream": stream, **form}
    answer = httpx.post(f"{text_server.api}/responses", json=body, timeout=60).text
    found = json.loads(answer) if not stream else json.loads(answer.strip().split("data: ")[-2])["response"]
    assert "".join(each["text"] for item in found["output"] for each in item["content"]) == ""
    assert 1 <= found["usage"]["output_tokens"] <= 8
