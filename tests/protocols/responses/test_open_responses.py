"""Responses are valid by the open Responses schema, whatever the request said; earlier files' become so."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from sensorium.actors.http.responses.row_codec import Row, from_row, to_row
from sensorium.protocols.responses.output_items import OutputMessage, OutputText, ResponseObject
from sensorium.protocols.responses.request import parse_response
from support.kept_responses import MINE, kept
from support.open_responses import check_event, check_response

TOOL = {"type": "function", "name": "now"}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}


def response(**fields: Any) -> ResponseObject:  # noqa: ANN401 (JSON)
    request = parse_response(json.dumps({"input": "a", **fields}).encode())
    echoed = OutputMessage(id="msg_1", status="completed", content=[OutputText(text="b")])
    return ResponseObject(
        id="resp_1",
        created_at=1,
        status="completed",
        model="m",
        output=[echoed],
        parallel_tool_calls=True,
        tool_choice=request.echoed.tool_choice,
        tools=request.echoed.tools,
        text=request.echoed.text,
        instructions=request.echoed.instructions,
        reasoning={"effort": None, "summary": None},
    )


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"instructions": "Be kind.", "text": {"format": {"type": "json_object"}}},
        {"text": {"format": SCHEMA, "verbosity": "low"}},
        {"text": {"format": {**SCHEMA, "name": "a", "description": "b", "strict": True}}},
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [{**TOOL, "parameters": {"type": "object"}, "strict": True}], "tool_choice": TOOL},
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [TOOL]}},
        {"tools": [{"type": "mcp", "server_label": "a", "server_url": "https://a.example"}]},
    ],
)
def test_what_is_said_again_is_whole(fields: dict[str, Any]) -> None:
    check_response(msgspec.json.encode(response(**fields)))


@pytest.mark.parametrize(
    "name", ["presence_penalty", "safety_identifier", "prompt_cache_key", "top_logprobs", "completed_at"]
)
def test_the_check_misses_what_is_missing(name: str) -> None:
    body = json.loads(msgspec.json.encode(response()))
    del body[name]
    with pytest.raises(msgspec.ValidationError, match=name):
        check_response(json.dumps(body).encode())
    with pytest.raises(msgspec.ValidationError, match=name):
        check_event(
            json.dumps({"type": "response.completed", "sequence_number": 1, "response": body}).encode()
        )


def test_a_response_of_an_earlier_file_becomes_valid() -> None:
    row = msgspec.msgpack.decode(to_row(kept("resp_1")).body)
    before = json.loads(row[0])
    for name in ("presence_penalty", "frequency_penalty", "safety_identifier", "prompt_cache_key"):
        del before[name]
    before |= {"top_logprobs": None, "temperature": None, "text": {"format": {"type": "text"}}}
    part = {"type": "output_text", "text": "b", "annotations": []}
    before["output"] = [
        {"type": "message", "id": "a", "status": "completed", "role": "assistant", "content": [part]}
    ]
    before["reasoning"] = {"effort": None, "summary": None}
    found = from_row(MINE, Row(msgspec.msgpack.encode([json.dumps(before).encode(), *row[1:]]), {}))
    assert type(found.response) is ResponseObject
    check_response(msgspec.json.encode(found.response))
