"""A response is written item by item; however its events come, the whole is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from sensorium.protocols.chat.answer_events import (
    ArgumentsAdded,
    CallBegun,
    CallEnded,
    Event,
    ReasoningAdded,
    TextAdded,
)
from sensorium.protocols.chat.response import TokenLogprob
from sensorium.protocols.responses.output_items import (
    InputTokensDetails,
    OutputTokensDetails,
    ResponseFault,
    ResponseObject,
    ResponseUsage,
)
from sensorium.protocols.responses.stream_events import ResponseEvent
from sensorium.protocols.responses.writer import ResponseWriter
from sensorium.protocols.shared.generation import named_sse
from support.open_responses import check_event

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
USAGE = ResponseUsage(
    input_tokens=1,
    input_tokens_details=InputTokensDetails(0),
    output_tokens=2,
    output_tokens_details=OutputTokensDetails(1),
    total_tokens=3,
)
ANSWER: list[Event] = [
    ReasoningAdded("Hm"),
    ReasoningAdded("."),
    TextAdded("I "),
    TextAdded("look."),
    CallBegun(0, "call_1", "f"),
    ArgumentsAdded(0, "{"),
    ArgumentsAdded(0, "}"),
    CallEnded(0),
    CallBegun(1, "call_2", "g"),
    ArgumentsAdded(1, "{}"),
    CallEnded(1),
]


def writer() -> ResponseWriter:
    return ResponseWriter(
        ResponseObject(
            id="resp_1",
            created_at=1,
            status="queued",
            model="m",
            output=[],
            parallel_tool_calls=True,
            tool_choice=msgspec.Raw(b'"auto"'),
            tools=msgspec.Raw(b"[]"),
            instructions=msgspec.Raw(b"null"),
            text=msgspec.Raw(b'{"format":{"type":"text"}}'),
            reasoning={"effort": None, "summary": None},
        ),
    )


def read(events: Sequence[ResponseEvent]) -> list[Any]:
    """Each event by OpenAI's types, strictly, and by the open Responses schema."""
    frames = [named_sse(event).decode() for event in events]
    found = []
    for frame in frames:
        name, data = frame.removesuffix("\n\n").split("\n")
        event = EVENT.validate_json(data.removeprefix("data: "), strict=True)
        check_event(data.removeprefix("data: ").encode())
        assert name == f"event: {event.type}"
        found.append(event)
    return found


def without_ids(response: ResponseObject) -> list[Any]:
    items: list[dict[str, Any]] = [msgspec.to_builtins(item) for item in response.output]
    return [{**item, "id": ""} for item in items]


def test_an_answer_in_pieces_is_the_answer() -> None:
    one, many = writer(), writer()
    sent = [*one.begin(), *one.add(ANSWER), *one.finish(USAGE, is_cut=False, now=2)]
    many.begin()
    for event in ANSWER:
        many.add([event])
    many.finish(USAGE, is_cut=False, now=2)
    assert without_ids(one.response) == without_ids(many.response)
    events = read(sent)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert isinstance(events[-1].response, Response)
    kinds = [item.type for item in events[-1].response.output]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in done] == [item.id for item in events[-1].response.output]
    assert [event.output_index for event in events if event.type == "response.output_item.added"] == [
        0,
        1,
        2,
        3,
    ]


def test_tokens_without_text_of_their_own_are_told_with_the_next_text() -> None:
    response = writer()
    half, whole, other, end = (TokenLogprob(name, -1.0, (0,), []) for name in ("\xc3", "\xa9", "!", "<end>"))
    sent = response.begin()
    sent += response.add([], [[half]])
    sent += response.add([TextAdded("é")], [[whole]])
    sent += response.add([TextAdded("!")], [[other]])
    sent += response.add([], [[end]])
    sent += response.finish(USAGE, is_cut=False, now=2)
    events = read(sent)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert [[each.token for each in event.logprobs] for event in deltas] == [["\xc3", "\xa9"], ["!"]]
    (part,) = events[-1].response.output[0].content
    assert [each.token for each in part.logprobs] == ["\xc3", "\xa9", "!", "<end>"]


def test_what_is_cut_says_so() -> None:
    response = writer()
    response.begin()
    response.add(ANSWER[:3])
    (*_, last) = read(response.finish(USAGE, is_cut=True, now=2))
    assert last.type == "response.incomplete"
    assert [item.status for item in last.response.output] == ["completed", "incomplete"]


def test_what_fails_says_so_and_keeps_what_there_is() -> None:
    response = writer()
    response.begin()
    response.add(ANSWER[:4])
    (last,) = read(response.fail(ResponseFault("server_error", "It failed.")))
    assert last.type == "response.failed"
    assert last.response.error.message == "It failed."
    assert len(last.response.output) == 2


def test_nothing_said_is_no_item() -> None:
    response = writer()
    response.begin()
    response.finish(USAGE, is_cut=False, now=2)
    assert response.response.output == []
    assert response.response.status == "completed"
