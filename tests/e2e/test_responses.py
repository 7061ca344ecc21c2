"""`/v1/responses` with OpenAI's package: created, streamed, kept, continued, given up; a random model.

What the model is to say is forced: it is the only choice there is.
"""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from PIL import Image
from pydantic import TypeAdapter
from support.open_responses import check_event, check_response
from support.server import Server, wait_until

pytestmark = pytest.mark.slow

KEY, OTHER_KEY = "one", "another"
NOW = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}, "strict": True}
SCHEMA = {"type": "json_schema", "name": "a"}
BROKEN = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nHm.\n</think>\n\n"
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture
def server(keyed_server: Server) -> Server:
    return keyed_server


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.api, api_key=KEY, max_retries=0) as client:
        yield client


def create(client: OpenAI, forced: str | None, given: Any = "Hello", **more: Any) -> Response:  # noqa: ANN401
    extra = {} if forced is None else {"extra_body": {"structured_outputs": {"choice": [forced]}}}
    responses: Any = client.responses
    answer = responses.create(model="chat", input=given, **extra, **more)
    body = answer.model_dump_json(exclude_unset=True, by_alias=True)
    Response.model_validate_json(body, strict=True)
    check_response(body.encode())
    assert isinstance(answer, Response)
    return answer


def stream(client: OpenAI, forced: str | None, **more: Any) -> list[Any]:  # noqa: ANN401
    """The events, each read strictly; they are numbered through."""
    extra = {} if forced is None else {"extra_body": {"structured_outputs": {"choice": [forced]}}}
    responses: Any = client.responses
    events = list(responses.create(model="chat", input="Hello", stream=True, **extra, **more))
    for event in events:
        body = event.model_dump_json(exclude_unset=True, by_alias=True)
        EVENT.validate_json(body, strict=True)
        check_event(body.encode())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def test_a_text(client: OpenAI) -> None:
    answer = create(client, "Good day.", instructions="Be kind.", metadata={"a": "b"}, user="me")
    assert answer.output_text == "Good day."
    assert answer.status == "completed"
    assert (answer.instructions, answer.metadata, answer.user) == ("Be kind.", {"a": "b"}, "me")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_what_is_thought_and_called(client: OpenAI) -> None:
    answer = create(client, f"{THOUGHT}I look.\n{CALL}", tools=[NOW])
    kinds = [item.type for item in answer.output]
    assert kinds == ["reasoning", "message", "function_call"]
    thought, message, call = (item.model_dump() for item in answer.output)
    assert thought["content"][0]["text"] == "Hm."
    assert message["content"][0]["text"] == "I look."
    assert (call["name"], call["arguments"], call["status"]) == ("now", "{}", "completed")
    assert answer.usage is not None
    assert 0 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens


def test_every_event_comes_in_order(client: OpenAI) -> None:
    events = stream(client, f"{THOUGHT}I look.\n{CALL}", tools=[NOW])
    types = [event.type for event in events]
    once = [name for index, name in enumerate(types) if index == 0 or types[index - 1] != name]
    assert once == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_a_stream_joins_to_the_whole(client: OpenAI) -> None:
    text = f"{THOUGHT}I look.\n{CALL}"
    whole = create(client, text, tools=[NOW])
    events = stream(client, text, tools=[NOW])
    last = events[-1].response

    def contents(response: Response) -> list[Any]:
        items = [item.model_dump() for item in response.output]
        return [{key: value for key, value in item.items() if key not in ("id", "call_id")} for item in items]

    assert contents(last) == contents(whole)
    joined = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert joined == last.output_text == "I look."
    assert client.responses.retrieve(last.id).model_dump() == last.model_dump()


def test_what_is_cut_is_incomplete(client: OpenAI) -> None:
    answer = create(client, None, max_output_tokens=3, temperature=0)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert stream(client, None, max_output_tokens=3, temperature=0)[-1].type == "response.incomplete"


def test_a_form_and_forced_calls(client: OpenAI) -> None:
    schema: Any = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "name": "a", "schema": schema}
    assert json.loads(create(client, None, text={"format": form}).output_text)["a"] in (1, 2)
    extra: Any = {"extra_body": {"enable_thinking": False}}
    answer = create(client, None, tools=[NOW], tool_choice={"type": "function", "name": "now"}, **extra)
    assert [item.type for item in answer.output] == ["function_call"]


def test_a_conversation_goes_on_where_it_was(client: OpenAI) -> None:
    first = create(client, CALL, "What time is it?", tools=[NOW], instructions="Only here.")
    call = first.output[0]
    assert call.type == "function_call"
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "noon"}
    second = create(client, "It is noon.", [result], previous_response_id=first.id, tools=[NOW])
    assert second.previous_response_id == first.id
    assert second.output_text == "It is noon."
    # The same by hand, with the items sent back: the same prompt, but for what the first was instructed.
    items: list[Any] = [{"role": "user", "content": "What time is it?"}]
    items += [item.model_dump(exclude_unset=True) for item in first.output]
    by_hand = create(client, "It is noon.", [*items, result], tools=[NOW], store=False)
    assert by_hand.usage is not None
    assert second.usage is not None
    assert by_hand.usage.input_tokens == second.usage.input_tokens
    third = create(client, "Yes.", "Sure?", previous_response_id=second.id)
    assert third.usage is not None
    assert third.usage.input_tokens > 0


def test_what_is_kept_can_be_had_and_deleted(client: OpenAI, server: Server) -> None:
    answer = create(client, "Yes.", [{"role": "user", "content": "Hm?"}])
    assert client.responses.retrieve(answer.id).output_text == "Yes."
    items: Any = list(client.responses.input_items.list(answer.id))
    assert [item.role for item in items] == ["user"]
    other = {"Authorization": f"Bearer {OTHER_KEY}"}
    assert httpx.get(f"{server.api}/responses/{answer.id}", headers=other).status_code == 404
    client.responses.delete(answer.id)
    mine = {"Authorization": f"Bearer {KEY}"}
    assert httpx.get(f"{server.api}/responses/{answer.id}", headers=mine).status_code == 404
    unkept = create(client, "Yes.", store=False)
    assert httpx.get(f"{server.api}/responses/{unkept.id}", headers=mine).status_code == 404


def test_in_the_background(client: OpenAI) -> None:
    answer = create(client, "Done.", background=True)
    assert answer.status == "queued"
    wait_until(lambda: client.responses.retrieve(answer.id).status == "completed")
    assert client.responses.retrieve(answer.id).output_text == "Done."
    endless = create(client, None, background=True, max_output_tokens=3000, extra_body={"ignore_eos": True})
    assert client.responses.cancel(endless.id).status == "cancelled"
    time.sleep(0.1)
    assert client.responses.retrieve(endless.id).status == "cancelled"


def test_a_stream_in_the_background_is_read_on_from_where_it_broke_off(client: OpenAI) -> None:
    endless: dict[str, Any] = {"max_output_tokens": 60, "extra_body": {"ignore_eos": True}}
    stream: Any = client.responses.create(model="chat", input="a", background=True, stream=True, **endless)
    seen = [next(stream) for _ in range(4)]
    stream.response.close()
    name = seen[0].response.id
    rest: Any = client.responses.retrieve(name, stream=True, starting_after=seen[-1].sequence_number)
    more = list(rest)
    assert [event.sequence_number for event in [*seen, *more]] == list(range(4 + len(more)))
    assert (seen[0].type, more[-1].type) == ("response.created", "response.incomplete")
    kept = client.responses.retrieve(name)
    assert kept.status == "incomplete", "who reads the last event has it at once"
    assert kept.output == more[-1].response.output
    whole: Any = client.responses.retrieve(name, stream=True)
    assert list(whole) == [*seen, *more]
    with pytest.raises(BadRequestError, match="sequence_number"):
        client.responses.retrieve(name, extra_query={"stream": "true", "starting_after": "x"})
    unstreamed = create(client, "Done.", background=True)
    with pytest.raises(BadRequestError, match="No events"):
        client.responses.retrieve(unstreamed.id, stream=True)


def test_a_stream_in_the_background_ends_when_it_is_given_up(client: OpenAI) -> None:
    endless: dict[str, Any] = {"max_output_tokens": 3000, "extra_body": {"ignore_eos": True}}
    stream: Any = client.responses.create(model="chat", input="a", background=True, stream=True, **endless)
    name = next(stream).response.id
    assert client.responses.cancel(name).status == "cancelled"
    assert "response.incomplete" not in {event.type for event in stream}
    failing: Any = client.responses.create(model="chat", input="word " * 5000, background=True, stream=True)
    *_, last = failing
    assert last.type == "response.failed"
    assert last.response.error.code == "invalid_prompt"
    assert client.responses.retrieve(last.response.id).status == "failed"


def test_long_tools_in_the_background_hold_nobody_up(client: OpenAI) -> None:
    tools: Any = [NOW | {"name": f"f{number}", "description": "ä\n" * 8000} for number in range(250)]
    with pytest.raises(BadRequestError, match="are kept up to 8 MiB") as refused:
        client.responses.create(model="chat", input="a", background=True, stream=True, tools=tools)
    assert refused.value.param == "stream"
    answer = client.responses.create(model="chat", input="a", background=True, tools=tools)
    wait_until(lambda: client.responses.retrieve(answer.id).status == "failed")
    assert len(client.responses.retrieve(answer.id).tools) == len(tools)


def test_logprobs_are_those_of_the_text_beside_thoughts_and_calls(client: OpenAI) -> None:
    given: dict[str, Any] = {"temperature": 0, "tools": [NOW], "include": ["message.output_text.logprobs"]}
    answer = create(client, f"{THOUGHT}I look.\n{CALL}", top_logprobs=2, **given)
    (part,) = next(item for item in answer.output if item.type == "message").content
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert "".join(each.token for each in part.logprobs) == "I look."
    events = stream(client, f"{THOUGHT}I look.\n{CALL}", top_logprobs=2, **given)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    contents = [each.model_dump() for event in deltas for each in event.logprobs]
    assert contents == [each.model_dump() for each in part.logprobs]
    # The same as chat says of all the answer's tokens.
    function: Any = {"type": "function", "function": {"name": "now", "parameters": NOW["parameters"]}}
    chat = client.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": "Hello"}],
        tools=[function],
        temperature=0,
        logprobs=True,
        top_logprobs=2,
        extra_body={"structured_outputs": {"choice": [f"{THOUGHT}I look.\n{CALL}"]}},
    )
    assert chat.choices[0].logprobs is not None
    every = [each.model_dump() for each in chat.choices[0].logprobs.content or ()]
    start = next(at for at in range(len(every)) if every[at : at + len(contents)] == contents)
    assert 0 < start < len(every) - len(contents)


def test_logprobs_and_special_tokens_that_show_go_together_in_texts_alone(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="skip_special_tokens"):
        create(client, None, top_logprobs=1, extra_body={"skip_special_tokens": False})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"role": "wizard", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": "b"}]}, "input[0].role"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": "a", "conversation": "c"}, "conversation"),
        ({"input": "a", "temperature": 9}, "temperature"),
        ({"input": "a", "colour": 1}, "colour"),
        ({"input": "a " * 4096}, "input"),
        ({"input": "a", "text": {"format": SCHEMA | {"schema": 1}}}, "text.format.schema"),
        ({"input": "a", "text": {"format": SCHEMA | {"schema": BROKEN}}}, "text.format"),
        ({"input": "a", "text": {"format": SCHEMA | {"schema": BROKEN}}, "stream": True}, "text.format"),
        ({"input": "a", "text": {"format": SCHEMA | {"schema": BROKEN}}, "tools": [NOW]}, "text.format"),
        ({"input": "a", "structured_outputs": {"regex": "("}}, "structured_outputs"),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_image", "image_url": "data:image/png;base64,%"}],
                    }
                ]
            },
            "input[0].content[0].image_url",
        ),
    ],
)
def test_what_is_wrong_is_named(server: Server, body: dict[str, Any], param: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{server.api}/responses", json=body, headers=headers, timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_input_tokens_are_counted_as_they_are_read(client: OpenAI) -> None:
    given: dict[str, Any] = {"tools": [NOW], "instructions": "Be kind.", "input": "Hello"}
    first = client.responses.create(model="chat", max_output_tokens=3, **given)
    assert first.usage is not None
    counted = client.responses.input_tokens.count(model="chat", **given)
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", first.usage.input_tokens)
    given |= {"input": "And then?", "previous_response_id": first.id}
    more = client.responses.create(model="chat", max_output_tokens=3, **given)
    assert more.usage is not None
    counted = client.responses.input_tokens.count(model="chat", **given)
    assert counted.input_tokens == more.usage.input_tokens > first.usage.input_tokens
    counted = client.responses.input_tokens.count(model="chat", input="word " * 5000)
    assert counted.input_tokens > 5000, "more than the context is counted, too"


def test_an_unknown_previous_response(server: Server) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    body = {"input": "a", "previous_response_id": "resp_none"}
    answer = httpx.post(f"{server.api}/responses", json=body, headers=headers, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "previous_response_id"
    assert answer.json()["error"]["code"] == "previous_response_not_found"


def test_an_image(text_server: Server) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (48, 40)).save(buffer, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    content = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": url}]
    with OpenAI(base_url=text_server.api, api_key="none", max_retries=0) as client:
        given: Any = [{"role": "user", "content": content}]
        answer = client.responses.create(model="vision", input=given, max_output_tokens=4, top_logprobs=2)
    assert answer.usage is not None
    assert answer.usage.input_tokens > 4
    message = answer.output[0].model_dump()
    assert len(message["content"][0]["logprobs"]) == answer.usage.output_tokens


def test_what_was_asked_comes_in_pages(client: OpenAI) -> None:
    """The latest first, as OpenAI has it; its client turns the pages."""
    texts = [[{"type": "input_text", "text": f"number {index}"}] for index in range(5)]
    given = [{"role": "user", "content": parts} for parts in texts]
    answer = create(client, "Yes.", given)
    listed = client.responses.input_items.list

    def numbers(items: Iterable[Any]) -> list[int]:
        return [int(item.content[0].text.split()[1]) for item in items]

    assert numbers(listed(answer.id)) == [4, 3, 2, 1, 0]
    assert numbers(listed(answer.id, order="asc", limit=2)) == [0, 1, 2, 3, 4]
    first = listed(answer.id, limit=2)
    assert (numbers(first.data), first.has_more) == ([4, 3], True)
    last = listed(answer.id, limit=2, after=listed(answer.id, order="asc").data[1].id)
    assert (numbers(last.data), last.has_more) == ([0], False)
    wrong: list[dict[str, Any]] = [{"limit": 0}, {"limit": 101}, {"order": "up"}, {"after": "none"}]
    for query in wrong:
        with pytest.raises(BadRequestError) as caught:
            listed(answer.id, **query)
        assert caught.value.param == next(iter(query))
