"""Answers held to the types of OpenAI's and Anthropic's packages, strictly: no coercion, no missing field.

Each request is sent whole and streamed. The packages themselves are lenient (`construct` accepts anything): a
client with a strict parser sees more than they do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic.types as anthropic_types
import httpx
import pytest
from openai import types as openai_types
from openai.types import audio, chat, responses
from peers.cases import (
    BAD,
    CHAT_BASE,
    CHATS,
    COMPLETION_BASE,
    COMPLETIONS,
    MESSAGE_BASE,
    MESSAGES,
    RESPONSE_BASE,
    RESPONSES,
    Body,
)
from peers.script import THOUGHT
from pydantic import TypeAdapter

URL = os.environ["PEERS_URL"]
MODEL = os.environ["PEERS_MODEL"]
SPEECH_MODEL = os.environ["PEERS_SPEECH_MODEL"]
SPEECH = Path(__file__).resolve().parents[2] / "examples" / "data" / "kitchen_lights.wav"

RESPONSE_EVENT: TypeAdapter[Any] = TypeAdapter(responses.ResponseStreamEvent)
MESSAGE_EVENT: TypeAdapter[Any] = TypeAdapter(anthropic_types.RawMessageStreamEvent)
TRANSCRIPT_EVENT: TypeAdapter[Any] = TypeAdapter(audio.TranscriptionStreamEvent)


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    """A client of the server that runs."""
    with httpx.Client(base_url=URL, timeout=120) as client:
        yield client


def whole(http: httpx.Client, path: str, body: Body) -> bytes:
    """The body of a 200."""
    answer = http.post(path, json={"model": MODEL} | body)
    assert answer.status_code == 200, answer.text
    return answer.content


def events(http: httpx.Client, path: str, body: Body) -> list[str]:
    """The data of every event of a stream; `[DONE]` is left out."""
    with http.stream("POST", path, json={"model": MODEL} | body | {"stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
    assert found
    return [each for each in found if each != "[DONE]"]


@pytest.mark.parametrize("name", CHATS)
def test_chat(http: httpx.Client, name: str) -> None:
    body = whole(http, "/v1/chat/completions", CHAT_BASE | CHATS[name])
    parsed = chat.ChatCompletion.model_validate_json(body, strict=True)
    assert len(parsed.choices) == CHATS[name].get("n", 1)


@pytest.mark.parametrize("usage", [False, True], ids=["", "usage"])
@pytest.mark.parametrize("name", CHATS)
def test_chat_streamed(http: httpx.Client, name: str, usage: bool) -> None:
    more: Body = {"stream_options": {"include_usage": True}} if usage else {}
    found = events(http, "/v1/chat/completions", CHAT_BASE | CHATS[name] | more)
    chunks = [chat.ChatCompletionChunk.model_validate_json(each, strict=True) for each in found]
    assert (chunks[-1].usage is not None) == usage
    ended = [choice for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert len(ended) == CHATS[name].get("n", 1)


@pytest.mark.parametrize("name", COMPLETIONS)
def test_completion(http: httpx.Client, name: str) -> None:
    body = whole(http, "/v1/completions", COMPLETION_BASE | COMPLETIONS[name])
    openai_types.Completion.model_validate_json(body, strict=True)


@pytest.mark.parametrize("name", COMPLETIONS)
def test_completion_streamed(http: httpx.Client, name: str) -> None:
    for each in events(http, "/v1/completions", COMPLETION_BASE | COMPLETIONS[name]):
        # The package has one type for both; only the last chunk of a choice has a reason.
        frame = json.loads(each)
        for choice in frame["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"
        openai_types.Completion.model_validate_json(json.dumps(frame), strict=True)


@pytest.mark.parametrize("name", RESPONSES)
def test_response(http: httpx.Client, name: str) -> None:
    body = whole(http, "/v1/responses", RESPONSE_BASE | RESPONSES[name])
    parsed = responses.Response.model_validate_json(body, strict=True)
    if RESPONSES[name].get("store", True):
        stored = http.get(f"/v1/responses/{parsed.id}")
        assert responses.Response.model_validate_json(stored.content, strict=True) == parsed


@pytest.mark.parametrize("name", RESPONSES)
def test_response_streamed(http: httpx.Client, name: str) -> None:
    found = events(http, "/v1/responses", RESPONSE_BASE | RESPONSES[name])
    parsed = [RESPONSE_EVENT.validate_json(each, strict=True) for each in found]
    assert [each.sequence_number for each in parsed] == list(range(len(parsed)))
    assert parsed[0].type == "response.created"
    assert parsed[-1].type in ("response.completed", "response.incomplete")


@pytest.mark.parametrize("name", MESSAGES)
def test_message(http: httpx.Client, name: str) -> None:
    body = whole(http, "/v1/messages", MESSAGE_BASE | MESSAGES[name])
    anthropic_types.Message.model_validate_json(body, strict=True)


@pytest.mark.parametrize("name", MESSAGES)
def test_message_streamed(http: httpx.Client, name: str) -> None:
    found = [
        each
        for each in events(http, "/v1/messages", MESSAGE_BASE | MESSAGES[name])
        if json.loads(each)["type"] != "ping"  # documented, and in none of the package's types
    ]
    parsed = [MESSAGE_EVENT.validate_json(each, strict=True) for each in found]
    assert (parsed[0].type, parsed[-1].type) == ("message_start", "message_stop")


@pytest.mark.parametrize("name", MESSAGES)
def test_message_count(http: httpx.Client, name: str) -> None:
    fields = ("max_tokens", "stop_sequences", "temperature", "top_p", "top_k", "metadata")
    body = {key: value for key, value in (MESSAGE_BASE | MESSAGES[name]).items() if key not in fields}
    counted = whole(http, "/v1/messages/count_tokens", body)
    assert anthropic_types.MessageTokensCount.model_validate_json(counted, strict=True).input_tokens > 0


scripted = pytest.mark.skipif(MODEL != "scripted", reason="another model thinks and calls as it likes")


@scripted
def test_thoughts_come_before_a_call_in_every_dialect(http: httpx.Client) -> None:
    name = "thoughts before a call"
    chatted = whole(http, "/v1/chat/completions", CHAT_BASE | CHATS[name])
    message = chat.ChatCompletion.model_validate_json(chatted, strict=True).choices[0].message
    assert json.loads(chatted)["choices"][0]["message"]["reasoning_content"].strip() == THOUGHT
    assert message.tool_calls
    assert message.tool_calls[0].type == "function"
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}
    answered = whole(http, "/v1/responses", RESPONSE_BASE | RESPONSES[name])
    response = responses.Response.model_validate_json(answered, strict=True)
    assert [item.type for item in response.output] == ["reasoning", "function_call"]
    written = whole(http, "/v1/messages", MESSAGE_BASE | MESSAGES[name])
    blocks = anthropic_types.Message.model_validate_json(written, strict=True).content
    assert [block.type for block in blocks] == ["thinking", "tool_use"]


@scripted
def test_streamed_pieces_join_to_the_whole_answer(http: httpx.Client) -> None:
    name = "thoughts before a call"
    found = events(http, "/v1/chat/completions", CHAT_BASE | CHATS[name])
    deltas = [json.loads(each)["choices"][0]["delta"] for each in found]
    assert "".join(each.get("reasoning_content") or "" for each in deltas).strip() == THOUGHT
    calls = [call for each in deltas for call in each.get("tool_calls") or []]
    assert json.loads("".join(call["function"].get("arguments") or "" for call in calls)) == {"city": "Paris"}
    assert [call["function"]["name"] for call in calls if call["function"].get("name")] == ["weather"]
    last = json.loads(events(http, "/v1/responses", RESPONSE_BASE | RESPONSES[name])[-1])
    assert json.loads(last["response"]["output"][-1]["arguments"]) == {"city": "Paris"}
    parts = [
        json.loads(each)["delta"].get("partial_json", "")
        for each in events(http, "/v1/messages", MESSAGE_BASE | MESSAGES[name])
        if json.loads(each)["type"] == "content_block_delta"
    ]
    assert json.loads("".join(parts)) == {"city": "Paris"}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/v1/chat/completions", CHAT_BASE),
        ("/v1/completions", COMPLETION_BASE),
        ("/v1/responses", RESPONSE_BASE),
    ],
    ids=["chat", "completions", "responses"],
)
def test_errors_of_openai(http: httpx.Client, path: str, base: Body, streamed: bool, name: str) -> None:
    answer = http.post(path, json={"model": MODEL} | base | BAD[name] | {"stream": streamed})
    assert 400 <= answer.status_code < 500, answer.text
    error = openai_types.shared.ErrorObject.model_validate_json(
        json.dumps(answer.json()["error"]), strict=True
    )
    assert error.message


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_errors_of_anthropic(http: httpx.Client, streamed: bool, name: str) -> None:
    answer = http.post(
        "/v1/messages", json={"model": MODEL} | MESSAGE_BASE | BAD[name] | {"stream": streamed}
    )
    assert 400 <= answer.status_code < 500, answer.text
    anthropic_types.ErrorResponse.model_validate_json(answer.content, strict=True)


def test_models(http: httpx.Client) -> None:
    for model in http.get("/v1/models").json()["data"]:
        openai_types.Model.model_validate_json(json.dumps(model), strict=True)
    anthropics = http.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()["data"]
    assert anthropics
    for model in anthropics:
        anthropic_types.ModelInfo.model_validate_json(json.dumps(model), strict=True)


TRANSCRIPTS: dict[str, tuple[Body, Any]] = {
    "json": ({}, audio.Transcription),
    "logprobs": ({"include[]": "logprobs"}, audio.Transcription),
    "verbose": ({"response_format": "verbose_json"}, audio.TranscriptionVerbose),
    "words": (
        {"response_format": "verbose_json", "timestamp_granularities[]": "word"},
        audio.TranscriptionVerbose,
    ),
    "language": ({"language": "en"}, audio.Transcription),
}


def form(more: Body) -> Body:
    """A transcription's form."""
    return {"model": SPEECH_MODEL, "temperature": "0", **more}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcription(http: httpx.Client, name: str) -> None:
    more, kind = TRANSCRIPTS[name]
    answer = http.post(
        "/v1/audio/transcriptions", data=form(more), files={"file": ("a.wav", SPEECH.read_bytes())}
    )
    assert answer.status_code == 200, answer.text
    kind.model_validate_json(answer.content, strict=True)


@pytest.mark.parametrize("name", ["json", "logprobs", "language"])
def test_transcription_streamed(http: httpx.Client, name: str) -> None:
    answer = http.post(
        "/v1/audio/transcriptions",
        data=form(TRANSCRIPTS[name][0] | {"stream": "true"}),
        files={"file": ("a.wav", SPEECH.read_bytes())},
    )
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    parsed = [TRANSCRIPT_EVENT.validate_json(each, strict=True) for each in lines if each != "[DONE]"]
    assert parsed[-1].type == "transcript.text.done"
