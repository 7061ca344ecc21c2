"""A quick part of `make peers`: answers held to the types of OpenAI's package, strictly."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai.types import chat, responses
from peers import script
from peers.cases import CHAT_BASE, CHATS, RESPONSE_BASE, RESPONSES
from peers.run import Tally, tally
from pydantic import TypeAdapter
from sensorium.actors.http.routes import routes
from support.server import Server

CUT = {"max_completion_tokens": 12}
"""The model of these tests writes at random."""
EVENT: TypeAdapter[Any] = TypeAdapter(responses.ResponseStreamEvent)


@pytest.mark.slow
def test_chats(chat_server: Server) -> None:
    with httpx.Client(base_url=chat_server.api) as client:
        for name in ("two choices", "logprobs", "call required", "tool result", "schema"):
            answer = client.post("/chat/completions", json=CHAT_BASE | CUT | CHATS[name])
            assert answer.status_code == 200, (name, answer.text)
            chat.ChatCompletion.model_validate_json(answer.content, strict=True)


@pytest.mark.slow
def test_events_of_responses(chat_server: Server) -> None:
    with httpx.Client(base_url=chat_server.api) as client:
        for name in ("logprobs", "call required", "tool result", "schema"):
            answer = client.post(
                "/responses",
                json=RESPONSE_BASE | RESPONSES[name] | {"max_output_tokens": 24} | {"stream": True},
            )
            assert answer.status_code == 200, (name, answer.text)
            found = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
            parsed = [EVENT.validate_json(each, strict=True) for each in found]
            assert parsed[-1].type in ("response.completed", "response.incomplete"), name


@pytest.mark.slow
def test_the_document_of_a_server_that_chats_names_exactly_what_there_is(chat_server: Server) -> None:
    made = httpx.get(f"{chat_server.url}/openapi.json").json()
    assert set(made["paths"]) == {route.path.replace(":path", "") for route in routes(chat_server.service)}
    assert "/tokenizer_info" in made["paths"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"])
def test_an_error_has_the_fields_that_the_document_requires(chat_server: Server, path: str) -> None:
    made = httpx.get(f"{chat_server.url}/openapi.json").json()
    answer = httpx.post(f"{chat_server.url}{path}", content=b"{")
    assert answer.status_code == 400
    described = made["paths"][path]["post"]["responses"]["400"]["content"]["application/json"]["schema"]
    name = described["$ref"].rsplit("/", 1)[1]
    fault = {"Error": "ErrorDetail", "MessageError": "MessageFault"}[name]
    schemas = made["components"]["schemas"]
    assert set(schemas[name]["required"]) <= set(answer.json())
    assert set(schemas[fault]["required"]) <= set(answer.json()["error"]) <= set(schemas[fault]["properties"])


TOOLS = (
    '<|im_start|>tools\n{"name": "add_numbers", "parameters": {"type": "object", "properties": '
    '{"first": {"type": "integer"}, "unit": {"enum": ["m", "ft"]}}}}\n<|im_end|>\n'
)


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([("user", "hi")], script.GREETING),
        ([("user", "Add 7 and 8.")], '{"name": "add_numbers", "arguments": {"first": 7, "unit": "m"}}'),
        ([("user", "Add 7."), ("tool", "15")], "The tool gave this result: 15"),
        ([("user", "Answer in JSON with 'setup' and 'punch'.")], '{"setup": "Meow.", "punch": "Meow."}'),
    ],
)
def test_the_scripted_model_calls_tools_as_it_is_told(turns: list[tuple[str, str]], expected: str) -> None:
    prompt = TOOLS + "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    found = script.answer(prompt)
    assert found.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>") == expected


def written(prompt: str, allowed: str) -> str:
    """An answer of single characters, the likeliest of those that a grammar would allow; `$` is the end."""
    pieces = [bytes([each]) for each in range(128)]
    text = ""
    for expected in allowed:
        liked = script.preferences(prompt, text.encode(), pieces, 0)
        choices = [0] if expected == "$" else range(1, 128) if expected == "." else [ord(expected)]
        text += chr(max(choices, key=lambda each: liked.get(each, 0.0)))
    return text.rstrip("\0")


def test_the_scripted_model_completes_what_a_grammar_began() -> None:
    prompt = "<|im_start|>user\nhi<|im_end|>\n"
    assert written(prompt, "." * len(script.GREETING) + "$") == script.GREETING
    assert written(prompt, '{"key":"....}$') == '{"key":"aaa"}'
    assert script.preferences("", b"Well: Hello! I am", [b"", b" well", b"x"], 0)[1] > 100


def test_a_report_is_counted() -> None:
    report = b"""<testsuites><testsuite>
        <testcase name="a"/><testcase name="b"><failure/></testcase><testcase name="c"><error/></testcase>
        <testcase name="d"><skipped type="pytest.skip"/></testcase>
        <testcase name="e"><skipped type="pytest.xfail"/></testcase></testsuite></testsuites>"""
    counted = tally(report)
    assert counted == Tally(passed=1, failed=2, expected=1, skipped=1)
    assert counted.tried == 4
