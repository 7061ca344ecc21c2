"""Tools in live sessions, over the SDK and OpenAI's package; and keys that open sessions that answer."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from openai import OpenAI
from sensorium.client import Client
from support.live_answers import live_talk, text
from support.server import Server

pytestmark = pytest.mark.slow

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
AT_ONCE = {"effort": "none"}
FORCED: dict[str, Any] = {"type": "function", "name": "get_weather"}


def test_a_call_its_output_and_the_answer_equal_chat_completions(chat_server: Server) -> None:
    with (
        Client(chat_server.url) as client,
        client.realtime(
            "chat", type="realtime", temperature=0, max_output_tokens=200, reasoning=AT_ONCE
        ) as session,
    ):
        answer = session.ask("The weather?", tools=[WEATHER], tool_choice=FORCED, temperature=1, seed=3)
        assert answer.text() == ""
        (call,) = answer.calls
        arguments = json.loads(call.arguments)
        assert arguments["city"] in ("Paris", "Rome")
        session.give(call.call_id, "sunny")
        text = session.ask(tools=[WEATHER], max_output_tokens=20).text()
    function = {"name": call.name, "arguments": call.arguments}
    chat_tool = {"type": "function", "function": {k: v for k, v in WEATHER.items() if k != "type"}}
    messages = [
        {"role": "user", "content": "The weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call.call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call.call_id, "content": "sunny"},
    ]
    body: dict[str, Any] = {"reasoning_effort": "none"}
    body |= {"model": "chat", "messages": messages, "tools": [chat_tool], "temperature": 0, "max_tokens": 20}
    message = httpx.post(f"{chat_server.api}/chat/completions", json=body, timeout=60).json()["choices"][0][
        "message"
    ]
    assert text == (message["content"] or "")
    first = {**body, "messages": messages[:1], "max_tokens": 200, "temperature": 1, "seed": 3}
    first["tool_choice"] = {"type": "function", "function": {"name": "get_weather"}}
    message = httpx.post(f"{chat_server.api}/chat/completions", json=first, timeout=60).json()["choices"][0][
        "message"
    ]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == arguments


def test_every_event_of_a_call_is_openais(chat_server: Server) -> None:
    with live_talk(
        chat_server,
        "chat",
        tools=[WEATHER],
        tool_choice="required",
        reasoning=AT_ONCE,
        max_output_tokens=200,
        temperature=1,
        seed=4,
    ) as talk:
        talk.add(text("The weather?"))
        talk.create()
        done = talk.session.until("response.done")["response"]
        (added,) = [
            event
            for event in talk.session.seen("response.output_item.added")
            if event["item"]["type"] == "function_call"
        ][:1]
        assert added["item"]["arguments"] == ""
        complete = talk.session.seen("function_call_arguments.done")
        calls = [item for item in done["output"] if item["type"] == "function_call"]
        assert [event["call_id"] for event in complete] == [call["call_id"] for call in calls]
        for call in calls:
            deltas = [
                event["delta"]
                for event in talk.session.seen("function_call_arguments.delta")
                if event["call_id"] == call["call_id"]
            ]
            assert "".join(deltas) == call["arguments"]
        assert "tools" in talk.session.seen("session.updated")[-1]["session"]


def test_a_client_secret_opens_a_session_that_answers(chat_server: Server) -> None:
    config: Any = {"type": "realtime", "model": "chat", "instructions": "Be brief.", "tools": [WEATHER]}
    with OpenAI(base_url=chat_server.api, api_key="none") as openai:
        made = openai.realtime.client_secrets.create(session=config)
    assert made.session.type == "realtime"
    assert made.session.instructions == "Be brief."
    with (
        Client(chat_server.url, api_key=made.value) as client,
        client.realtime(type="realtime", temperature=0, max_output_tokens=4) as session,
    ):
        assert session.updated is not None
        assert getattr(session.updated.session, "instructions", "") == "Be brief."
        assert getattr(session.updated.session, "tools", [])[0]["name"] == "get_weather"
        assert session.ask("Hello").status


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"type": "realtime", "model": "nobody"}, "session.model"),
        ({"type": "realtime", "temperature": 9}, "session.temperature"),
        ({"type": "realtime", "model": "chat", "tools": [{}]}, "session.tools[0].type"),
        ({"type": "transcription", "instructions": ""}, "session.instructions"),
    ],
)
def test_a_secret_that_would_open_nothing_is_not_made(
    chat_server: Server, session: dict[str, object], param: str
) -> None:
    answer = httpx.post(f"{chat_server.api}/realtime/client_secrets", json={"session": session})
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["param"] == param
