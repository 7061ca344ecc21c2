"""Requests of `/v1/responses`: input items become messages, and what is wrong is named by its place."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter
from sensorium.protocols.chat.content import ChatMessage, MediaPart, TextPart
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.responses.input_items import continued, read_input
from sensorium.protocols.responses.request import CheckedResponse, input_items, parse_response
from sensorium.protocols.shared.structured_outputs import ResponseFormat

DATA = base64.b64encode(b"bytes").decode()
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x": 1}', "id": "fc_1"}
RESULT = {"type": "function_call_output", "call_id": "a", "output": "1"}
ITEM: TypeAdapter[ResponseItem] = TypeAdapter(ResponseItem)
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}


def read(items: object) -> tuple[ChatMessage, ...]:
    return read_input(msgspec.Raw(json.dumps(items).encode())).messages


def parse(**fields: Any) -> CheckedResponse:  # noqa: ANN401 (JSON)
    return parse_response(json.dumps({"input": "Hi", **fields}).encode())


def test_a_text_is_a_users_message() -> None:
    assert read("Hi") == (ChatMessage(role="user", content="Hi", extra={}, param="input"),)
    with pytest.raises(BadRequestError, match="expected string, array, got integer"):
        read(3)


def test_what_an_assistant_did_in_one_turn_is_one_message() -> None:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    part = {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}
    message = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    first, turn, result = read([{"role": "user", "content": "a"}, thought, message, CALL, RESULT])
    assert first.role == "user"
    assert (turn.role, turn.content, turn.param) == ("assistant", "I look.", "input[1]")
    assert turn.extra["reasoning_content"] == "hm"
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    assert turn.extra["tool_calls"] == [call]
    assert (result.role, result.content, result.extra) == ("tool", "1", {"tool_call_id": "a"})


def test_parts() -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}", "detail": "low"}
    audio = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
    ((message),) = read([{"role": "user", "content": [{"type": "input_text", "text": "a"}, image, audio]}])
    assert message.content == (
        TextPart("a"),
        MediaPart("image", b"bytes", "input[0].content[1]", is_low=True),
        MediaPart("audio", b"bytes", "input[0].content[2]"),
    )


def test_an_image_in_a_functions_result_is_shown_behind_the_results() -> None:
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"}
    shot = {**RESULT, "output": [{"type": "input_text", "text": "The screen:"}, image]}
    results = [shot, {**RESULT, "call_id": "b"}]
    calls = [CALL, {**CALL, "call_id": "b"}]
    file = MediaPart("image", b"bytes", "input[2].output[1]")
    for more in ([], [{"role": "user", "content": "And?"}]):
        message, first, second, shown, *rest = read([*calls, *results, *more])
        assert [each.role for each in (message, first, second)] == ["assistant", "tool", "tool"]
        assert first.content == (TextPart("The screen:"),)
        assert (shown.role, shown.content) == ("user", (file,))
        assert [each.content for each in rest] == (["And?"] if more else [])


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([], "input"),
        (3, "input"),
        ([3], "input[0]"),
        ([{"role": "user"}], "input[0].content"),
        ([{"content": "a"}], "input[0].role"),
        ([{"type": "item_reference"}], "input[0].id"),
        ([{"type": "function_call", "name": "f"}], "input[0].call_id"),
        ([{**CALL, "arguments": "["}], "input[0].arguments"),
        ([{"type": "function_call_output", "call_id": "a"}], "input[0].output"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0].image_url"),
        (
            [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}],
            "input[0].content[0].file_id",
        ),
        ([{"role": "user", "content": [{"type": "output_text"}]}], "input[0].content[0].text"),
        (
            [{"role": "system", "content": [{"type": "input_image", "image_url": f"data:;base64,{DATA}"}]}],
            "input[0].content[0]",
        ),
    ],
)
def test_what_is_wrong_with_an_item_is_named(items: object, param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(items)
    assert caught.value.param == param


def test_a_request() -> None:
    schema = {"type": "object"}
    request = parse(
        instructions="Be kind.",
        tools=[TOOL],
        text={"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}},
        reasoning={"effort": "low"},
        max_output_tokens=5,
        parallel_tool_calls=False,
        top_logprobs=2,
    )
    conversation = request.conversation(request.read.messages)
    assert [message.role for message in conversation.messages] == ["system", "user"]
    assert conversation.tools == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]
    assert conversation.template_kwargs == {"reasoning_effort": "low"}
    assert conversation.tool_use.max_calls == 1
    assert request.chat.wanted_tokens == 5
    assert request.chat.response_format is not None
    assert request.chat.response_format.type == "json_schema"
    assert request.request.wants_logprobs
    assert parse(text={"format": {"type": "json_object"}}).chat.response_format == ResponseFormat(
        "json_object"
    )
    assert parse(text={"format": {"type": "text"}}).chat.response_format is None
    unused = parse(tools=[TOOL], tool_choice="none")
    assert unused.conversation(unused.read.messages).tools is None


def test_a_conversation_goes_on() -> None:
    before = read([{"role": "user", "content": "a"}, CALL])
    result = parse(input=[RESULT])
    assert len(result.conversation((*before, *result.read.messages)).messages) == 3
    with pytest.raises(BadRequestError) as caught:
        result.conversation((*before, *parse(input="b").read.messages))
    assert caught.value.param == "input[1].tool_calls[0]"


def test_an_answer_that_is_sent_again_counts_once() -> None:
    message, request = {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And?"}
    other, other_result = CALL | {"call_id": "b"}, RESULT | {"call_id": "b"}

    def left(before: list[dict[str, Any]], sent: list[dict[str, Any]]) -> tuple[ChatMessage, ...]:
        known, new = read(before) if before else (), read(sent)
        found = continued(known, new)
        assert found[: len(known)] == known
        assert set(map(id, found[len(known) :])) <= set(map(id, new))
        return found[len(known) :]

    assert left([], [message, request]) == read([message, request])
    assert left([request, message], [message, request]) == read([message, request])[1:]
    assert left([request, message], [request, message]) == read([request, message])
    assert len(left([request, message], [message | {"content": "Hell"}, request])) == 2
    calls = [request, message, CALL, other]
    assert [each.role for each in left(calls, [CALL, other, RESULT, other_result])] == ["tool"] * 2
    assert [each.role for each in left(calls, [message, CALL, RESULT, other, other_result])] == ["tool"] * 2
    assert len(left([request, CALL], [CALL, other, RESULT])) == 2, "another one was made"


def test_an_input_may_be_empty_behind_another_response() -> None:
    with pytest.raises(BadRequestError, match="no items"):
        parse(input=[])
    with pytest.raises(BadRequestError, match="missing"):
        parse_response(b"{}")
    assert parse(input=[], previous_response_id="resp_1").read.messages == ()
    assert parse_response(b'{"previous_response_id": "resp_1"}').items == []


def test_items_are_kept_as_they_were_written() -> None:
    (item,) = input_items(msgspec.Raw(b'"Hi"'))
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    assert json.loads(bytes(item)) == {"id": "item_0", **message}
    (item,) = input_items(msgspec.Raw(json.dumps([CALL]).encode()))
    assert json.loads(bytes(item)) == CALL


@pytest.mark.parametrize(("role", "kind"), [("user", "input_text"), ("assistant", "output_text")])
def test_a_messages_text_is_listed_as_its_part(role: str, kind: str) -> None:
    (raw,) = input_items(msgspec.Raw(json.dumps([{"role": role, "content": "Hi"}]).encode()))
    item = ITEM.validate_json(bytes(raw), strict=True).model_dump()
    assert [(part["type"], part["text"]) for part in item["content"]] == [(kind, "Hi")]


def test_items_have_ids_of_their_own() -> None:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    names = ["msg_1", "msg_1", None, "", "item_2", "item_3"]
    given = [{**message, "id": name} if name is not None else message for name in names]
    found = [json.loads(bytes(item)) for item in input_items(msgspec.Raw(json.dumps(given).encode()))]
    kept = [item["id"] for item in found]
    assert [kept[0], *kept[2:4]] == ["msg_1", "item_2", "item_3"]
    assert len(set(kept)) == len(names)
    assert all({**item, "id": ""} == {**message, "id": ""} for item in found)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"include": ["message.output_text.logprob"]}, "include[0]"),
        ({"reasoning": {"effort": "utmost"}}, "reasoning.effort"),
        ({"text": {"verbosity": "lowest"}}, "text.verbosity"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"metadata": {f"k{index}": "" for index in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"background": True, "store": False}, "background"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
        (
            {"tools": [TOOL], "tool_choice": "required", "structured_outputs": {"regex": "a"}},
            "structured_outputs",
        ),
        ({"service_tier": "fast"}, "service_tier"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ({"truncation": "most"}, "truncation"),
        ({"user": "u" * 513}, "user"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(("mode", "is_refused"), [("auto", False), ("required", True)])
def test_a_form_goes_with_tools_that_may_be_called_and_not_with_those_that_must(
    mode: str, is_refused: bool
) -> None:
    allowed = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": TOOL["name"]}]}
    request = {"tools": [TOOL], "tool_choice": allowed, "structured_outputs": {"choice": ["yes", "no"]}}
    if not is_refused:
        assert parse(input="Hi.", **request).chat.structured_outputs is not None
        return
    with pytest.raises(BadRequestError) as caught:
        parse(input="Hi.", **request)
    assert caught.value.param == "structured_outputs"
