"""What ends an answer is in its token ids and its count: a stop token, or the tokens of a stop string."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium import LocalEngine, SamplingOptions
from sensorium.engine.text.tokenizer import TextTokenizer
from support.server import Server

pytestmark = pytest.mark.slow

Complete = Callable[..., tuple[list[int], list[str], str, int]]

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
    return choice["token_ids"] or [], names(choice), content, found["usage"]["completion_tokens"]


def names(choice: dict[str, Any]) -> list[str]:
    logprobs = choice["logprobs"] or {"tokens": []}
    return (
        list(logprobs["tokens"]) if "tokens" in logprobs else [each["token"] for each in logprobs["content"]]
    )


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


@pytest.mark.parametrize("complete", [whole, streamed])
@pytest.mark.parametrize("route", BODIES)
def test_a_stop_token_is_in_the_ids_and_the_count(
    text_server: Server, text: TextTokenizer, end: int, route: str, complete: Complete
) -> None:
    (a,) = text.encode("a", allow_special=True)
    name_of = {end: text.backend.id_to_token(end), a: "a"}
    cases: list[tuple[int, dict[str, Any]]] = [
        (end, {"min_tokens": 2, "allowed_token_ids": [a, end], "logit_bias": {str(end): 100}}),
        (a, {"min_tokens": 0, "allowed_token_ids": [a], "stop_token_ids": [a], "ignore_eos": True}),
    ]
    for stop, options in cases:
        before = [a] * options["min_tokens"]
        ids, scored, content, count = complete(
            text_server, route, max_tokens=9, return_token_ids=True, **options
        )
        assert ids == [*before, stop]
        assert scored == [name_of[each] for each in ids]
        assert (content, count) == ("a" * len(before), len(ids))
        # Who asks for no ids has OpenAI's log-probabilities: those of the text.
        none, scored, again, count = complete(text_server, route, max_tokens=9, **options)
        assert (none, scored, again, count) == ([], ["a"] * len(before), content, len(ids))


@pytest.mark.parametrize("complete", [whole, streamed])
@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize("includes", [False, True])
def test_the_tokens_of_a_stop_string_are_in_the_ids_and_the_count(
    text_server: Server, text: TextTokenizer, route: str, complete: Complete, includes: bool
) -> None:
    a, b = (text.encode(each, allow_special=True)[0] for each in "ab")
    options = {"allowed_token_ids": [a, b], "seed": 5, "temperature": 1.0, "ignore_eos": True}
    options |= {"max_tokens": 12, "return_token_ids": True}
    free, _, all_text, _ = complete(text_server, route, **options)
    stop = all_text[4:7]
    place = all_text.index(stop)
    ids, scored, content, count = complete(
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


@pytest.mark.parametrize("stop", [(), "bb"])
def test_what_ends_an_answer_is_in_its_ids(
    folders: dict[str, Path], text: TextTokenizer, end: int, stop: str | tuple[str, ...]
) -> None:
    a, b = (text.encode(each, allow_special=True)[0] for each in "ab")
    likely = {end: 90.0} if not stop else {b: 90.0}
    options = SamplingOptions(
        max_tokens=9,
        temperature=0,
        min_tokens=2,
        logprobs=1,
        stop=stop,
        allowed_token_ids=(a, b, end),
        logit_bias=likely,
    )
    with LocalEngine(
        folders["text"], device="cpu", dtype="float32", kv_memory="16MiB", max_running=4
    ) as engine:
        whole = engine.generate("Hello", options)[0]
        deltas = list(engine.stream("Hello", options))
    assert whole.finish_reason == "stop"
    if stop:
        assert (whole.stop, whole.text + "bb") == ("bb", text.decode(whole.token_ids))
    else:
        assert (len(whole.token_ids), whole.token_ids[-1]) == (3, end)
    assert whole.logprobs is not None
    assert whole.top_logprobs is not None
    assert len(whole.logprobs) == len(whole.top_logprobs) == len(whole.token_ids)
    assert tuple(token_id for delta in deltas for token_id in delta.token_ids) == whole.token_ids
