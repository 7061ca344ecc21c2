"""Tools and reasoning over `/v1/chat/completions`, read by OpenAI's package; the model says random things.

What it is to say is forced by a grammar: calls by `tool_choice`, any other text as the only choice there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from sensorium.client import Client
from support.server import Server

pytestmark = pytest.mark.slow

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
                "unit": {"enum": ["c", "f"]},
            },
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>'
ARGUMENTS = '{"city": "Paris", "days": 2}'


@pytest.fixture
def client(chat_server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=chat_server.api, api_key="none", max_retries=0) as client:
        yield client


def create(
    client: OpenAI,
    text: str | None = None,
    messages: list[Any] = HELLO,
    **more: Any,  # noqa: ANN401 (any field)
) -> ChatCompletion:
    """An answer; `text` is what the model must say."""
    extra = more.pop("extra_body", {})
    if text is not None:
        extra = {**extra, "structured_outputs": {"choice": [text]}}
    answer: ChatCompletion = client.chat.completions.create(
        model="chat", messages=messages, extra_body=extra, **more
    )
    return answer


def joined(client: OpenAI, text: str, **more: Any) -> tuple[dict[str, Any], str | None]:  # noqa: ANN401
    """A stream's deltas as one message, each frame read strictly, and how it ended."""
    extra = {**more.pop("extra_body", {}), "structured_outputs": {"choice": [text]}}
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "reasoning": "", "tool_calls": []}
    reason = None
    stream: Any = client.chat.completions.create(
        model="chat", messages=HELLO, stream=True, extra_body=extra, **more
    )
    for chunk in stream:
        ChatCompletionChunk.model_validate_json(chunk.model_dump_json(exclude_unset=True), strict=True)
        (choice,) = chunk.choices
        reason = choice.finish_reason or reason
        delta = choice.delta.model_dump(exclude_unset=True)
        for name in ("content", "reasoning_content", "reasoning"):
            message[name] += delta.get(name) or ""
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(message["tool_calls"]):
                assert call["id"]
                assert call["type"] == "function"
                message["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
            else:
                assert "id" not in call
                assert "name" not in call["function"]
            message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    return message, reason


def whole(answer: ChatCompletion) -> dict[str, Any]:
    message: Any = answer.choices[0].message
    extra = message.model_extra or {}
    calls = message.tool_calls or []
    return {
        "content": message.content or "",
        "reasoning_content": extra.get("reasoning_content", ""),
        "reasoning": extra.get("reasoning", ""),
        "tool_calls": [{"name": c.function.name, "arguments": c.function.arguments} for c in calls],
    }


def check_call(call: Any) -> None:  # noqa: ANN401
    assert call.type == "function"
    assert call.id
    arguments = json.loads(call.function.arguments)
    if call.function.name == "now":
        assert arguments == {}
        return
    assert call.function.name == "get_weather"
    assert {"city", "days"} <= set(arguments) <= {"city", "days", "unit"}
    assert len(arguments["city"]) <= 12
    assert 1 <= arguments["days"] <= 9


FORCED = ("required", {"type": "function", "function": {"name": "get_weather"}})


def test_every_forced_call_is_valid(client: OpenAI) -> None:
    kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
    for seed, choice in enumerate(FORCED):
        answer = create(
            client,
            tools=[WEATHER, NOW],
            tool_choice=choice,
            parallel_tool_calls=False,
            n=32,
            seed=seed,
            max_tokens=600,
            extra_body=kwargs,
        )
        for each in answer.choices:
            assert each.finish_reason == "tool_calls"
            assert each.message.content is None
            assert each.message.tool_calls
            assert len(each.message.tool_calls) == 1
            check_call(each.message.tool_calls[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL, {"tool_calls": [{"name": "get_weather", "arguments": ARGUMENTS}]}),
        (
            f'<think>\nWhich city?\n</think>\n\nI look.\n{CALL}\n<tool_call>{{"name": "now"}}</tool_call>',
            {
                "content": "I look.",
                "reasoning_content": "Which city?",
                "reasoning": "Which city?",
                "tool_calls": [
                    {"name": "get_weather", "arguments": ARGUMENTS},
                    {"name": "now", "arguments": "{}"},
                ],
            },
        ),
        ("Nothing to look up.\n", {"content": "Nothing to look up.\n"}),
        ("<tool_call>\nnone", {"content": "<tool_call>\nnone"}),
    ],
)
def test_a_stream_tells_what_the_whole_does(client: OpenAI, text: str, expected: dict[str, Any]) -> None:
    expected_fields = {"content": "", "reasoning_content": "", "reasoning": "", "tool_calls": []} | expected
    reason = "tool_calls" if expected_fields["tool_calls"] else "stop"
    answer = create(client, text, tools=[WEATHER, NOW])
    ChatCompletion.model_validate_json(answer.model_dump_json(exclude_unset=True), strict=True)
    assert whole(answer) == expected_fields
    assert answer.choices[0].finish_reason == reason
    assert joined(client, text, tools=[WEATHER, NOW]) == (expected_fields, reason)


def test_calls_are_looked_for_only_where_there_are_tools(client: OpenAI) -> None:
    without: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "none"}
    for options in ({}, without):
        answer = create(client, CALL, **options)
        assert answer.choices[0].message.content == CALL
        assert answer.choices[0].finish_reason == "stop"


def test_drafts_that_cross_thoughts_and_calls_change_nothing(client: OpenAI) -> None:
    """A right prediction comes in pieces of many tokens: over the end of a thought, and into a call."""
    text = f"<think>\nHm.\n</think>\n\nLook: {CALL}"
    predicted: dict[str, Any] = {"tools": [WEATHER], "prediction": {"type": "content", "content": text}}
    plain, guessed = create(client, text, tools=[WEATHER]), create(client, text, **predicted)
    assert whole(guessed) == whole(plain)
    assert guessed.usage is not None
    details = guessed.usage.completion_tokens_details
    assert details is not None
    assert (details.accepted_prediction_tokens or 0) > 10
    assert joined(client, text, **predicted) == (whole(plain), "tool_calls")


def test_one_call_where_only_one_is_wanted(client: OpenAI) -> None:
    answer = create(client, f"{CALL}\n{CALL}", tools=[WEATHER], parallel_tool_calls=False)
    assert len(answer.choices[0].message.tool_calls or ()) == 1


def test_a_form_is_that_of_text_and_calls_may_come_in_its_place(client: OpenAI) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    options: dict[str, Any] = {"tools": [WEATHER], "response_format": form, "max_completion_tokens": 400}
    options |= {"extra_body": {"enable_thinking": False}, "seed": 1}
    forced = create(client, **options, tool_choice="required")
    for call in forced.choices[0].message.tool_calls or []:
        check_call(call)
    assert forced.choices[0].finish_reason == "tool_calls"
    # Either one, as the model likes.
    found = httpx.post(
        f"{client.base_url}".replace("/v1/", "/tokenize"),
        json={"prompt": "<tool_call>", "add_special_tokens": False},
        timeout=60,
    )
    assert found.status_code == 200, found.text
    (mark,) = found.json()["tokens"]
    called = create(client, **options, logit_bias={mark: 100}, parallel_tool_calls=False)
    (call,) = called.choices[0].message.tool_calls or []
    check_call(call)
    assert not called.choices[0].message.content
    for more in ({"logit_bias": {mark: -100}}, {"tool_choice": "none"}):
        answer = create(client, **options, **more)
        assert not answer.choices[0].message.tool_calls
        assert json.loads(answer.choices[0].message.content or "")["a"] in (1, 2)


def test_usage_tells_how_much_was_thought(client: OpenAI) -> None:
    text = "<think>\nHm.\n</think>\n\nYes."
    usage = create(client, text).usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    thought = usage.completion_tokens_details.reasoning_tokens
    assert thought is not None
    assert 0 < thought < usage.completion_tokens
    stream: Any = client.chat.completions.create(
        model="chat",
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"structured_outputs": {"choice": [text]}},
    )
    (last,) = [chunk.usage for chunk in stream if chunk.usage is not None]
    assert 0 < last.completion_tokens_details.reasoning_tokens < last.completion_tokens
    plain = create(client, "Yes.").usage
    assert plain is not None
    assert plain.completion_tokens_details is not None
    assert plain.completion_tokens_details.reasoning_tokens == 0


def test_reasoning_can_be_left_out(client: OpenAI) -> None:
    text = "<think>\nHm.\n</think>\n\nYes."
    hidden = whole(create(client, text, extra_body={"include_reasoning": False}))
    assert (hidden["content"], hidden["reasoning"]) == ("Yes.", "")
    assert joined(client, text, extra_body={"include_reasoning": False})[0]["reasoning"] == ""


@pytest.mark.parametrize(
    "off",
    [
        {"reasoning_effort": "none"},
        {"extra_body": {"enable_thinking": False}},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
    ],
)
def test_thinking_is_switched_off_by_each_of_its_names(client: OpenAI, off: dict[str, Any]) -> None:
    long = create(client, "Yes.", **off).usage
    short = create(client, "Yes.").usage
    assert long is not None
    assert short is not None
    assert long.prompt_tokens > short.prompt_tokens, "the template writes empty thoughts"


def test_a_call_and_its_result_go_back(client: OpenAI) -> None:
    first = create(client, CALL, tools=[WEATHER]).choices[0].message
    assert first.tool_calls
    messages = [
        *HELLO,
        first.model_dump(exclude_unset=True),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "12 degrees"},
    ]
    answer = create(client, "Cold.", messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "Cold."


RESULT = {"role": "tool", "tool_call_id": "a", "content": "1"}
ASSISTANT = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [*HELLO, RESULT]}, "messages[1].role"),
        ({"messages": [*HELLO, ASSISTANT, RESULT, RESULT]}, "messages[3].tool_call_id"),
        ({"messages": [*HELLO, ASSISTANT, *HELLO]}, "messages[1].tool_calls[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {
                            "name": "f",
                            "parameters": {
                                "type": "object",
                                "properties": {"a": {"type": "array", "uniqueItems": True}},
                                "required": ["a"],
                            },
                        },
                    }
                ],
                "tool_choice": "required",
            },
            "tools",
        ),
    ],
)
def test_what_is_wrong_is_named(chat_server: Server, body: dict[str, Any], param: str) -> None:
    answer = httpx.post(f"{chat_server.api}/chat/completions", json={"messages": HELLO, **body}, timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_a_model_without_a_format_for_calls_says_so(text_server: Server) -> None:
    answer = httpx.post(
        f"{text_server.api}/chat/completions", json={"model": "text", "messages": HELLO, "tools": [NOW]}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools"


def test_the_sdk_runs_functions_and_the_server_takes_their_results(chat_server: Server) -> None:
    options: list[tuple[str, int]] = []

    def get_weather(city: str, days: int) -> dict[str, object]:
        """The weather of some days."""
        options.append((city, days))
        if len(options) > 1:
            raise LookupError(city)
        return {"sun": True}

    with Client(chat_server.url) as sdk:
        calls = {"structured_outputs": {"choice": [CALL]}}  # what the model is to say, every time
        answer = sdk.chat("Go", tools=[get_weather], max_rounds=2, extra=calls)
    assert [message["role"] for message in answer.messages] == [
        "user",
        *["assistant", "tool"] * 2,
        "assistant",
    ]
    assert [each["content"] for each in answer.messages[2::2]] == [
        '{"sun":true}',
        "error: LookupError: Paris",
    ]
    assert (options, answer.finish_reason) == ([("Paris", 2)] * 2, "tool_calls")


def test_a_forced_call_that_finds_no_end_is_cut_at_the_contexts(client: OpenAI) -> None:
    """A string without a longest length may go on for as long as a random model likes."""
    note = {"properties": {"text": {"type": "string", "minLength": 1000}}, "required": ["text"]}
    tool = {"type": "function", "function": {"name": "note", "parameters": {"type": "object", **note}}}
    long: list[Any] = [{"role": "user", "content": "x" * 3500}]
    answer = create(client, messages=long, tools=[tool], tool_choice="required")
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 4096
    (call,) = whole(answer)["tool_calls"]
    assert call["name"] == "note"
    assert call["arguments"].startswith("{")
    with pytest.raises(json.JSONDecodeError):
        json.loads(call["arguments"], strict=False)
