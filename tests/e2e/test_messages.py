"""`/v1/messages` over a real socket; the model says random things, or the only choice there is.

The `anthropic` package is not among the tests' own: what its clients send and read is written here.
"""

from __future__ import annotations

import base64
import io
import json
from datetime import datetime
from typing import Any

import httpx
import pytest
from PIL import Image
from support.server import Server

pytestmark = pytest.mark.slow

KEY = "one"
DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris"]}},
    "required": ["city"],
}
BROKEN = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
NO_MORE = {"additionalProperties": False}
WEATHER = {"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ANSWER = f"<think>\nHm.\n</think>\n\nI look.\n{CALL}"


@pytest.fixture
def server(keyed_server: Server) -> Server:
    return keyed_server


def post(server: Server, path: str = "", forced: str | None = None, **body: Any) -> httpx.Response:  # noqa: ANN401
    """As Anthropic's clients send it; `forced` is what the model must say."""
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    least: dict[str, Any] = {"messages": HELLO} if path else {"messages": HELLO, "max_tokens": 300}
    extra = {} if forced is None else {"structured_outputs": {"choice": [forced]}}
    return httpx.post(f"{server.api}/messages{path}", json=least | extra | body, headers=headers, timeout=60)


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, each named by its type."""
    found = []
    for frame in answer.text.split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if not lines or lines == ["data: [DONE]"]:
            continue
        name, data = lines
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def assembled(received: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream, as Anthropic's documents say it should."""
    assert received[0]["type"] == "message_start"
    message: dict[str, Any] = received[0]["message"]
    texts: dict[int, str] = {}
    for event in received[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
                texts[event["index"]] = ""
            case "content_block_delta":
                delta = event["delta"]
                kind = {
                    "text_delta": "text",
                    "thinking_delta": "thinking",
                    "input_json_delta": "partial_json",
                }
                texts[event["index"]] += delta[kind[delta["type"]]]
            case "content_block_stop":
                block = message["content"][event["index"]]
                name = {"text": "text", "thinking": "thinking", "tool_use": "input"}[block["type"]]
                text = texts[event["index"]]
                block[name] = json.loads(text) if name == "input" else text
            case "message_delta":
                message |= event["delta"] | {"usage": event["usage"]}
    assert received[-1]["type"] == "message_stop"
    return message


def plain(message: dict[str, Any]) -> dict[str, Any]:
    blocks = [{key: value for key, value in block.items() if key != "id"} for block in message["content"]]
    return {"content": blocks, "stop_reason": message["stop_reason"], "role": message["role"]}


def test_blocks(server: Server) -> None:
    answer = post(server, forced=ANSWER, tools=[WEATHER]).json()
    assert answer["type"] == "message"
    assert [block["type"] for block in answer["content"]] == ["thinking", "text", "tool_use"]
    thought, forced, call = answer["content"]
    assert (thought["thinking"], forced["text"]) == ("Hm.", "I look.")
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Paris"})
    assert answer["stop_reason"] == "tool_use"
    assert answer["usage"]["output_tokens"] > 0


def test_a_stream_joins_to_the_whole(server: Server) -> None:
    whole = post(server, forced=ANSWER, tools=[WEATHER]).json()
    received = events(post(server, forced=ANSWER, tools=[WEATHER], stream=True))
    num_prompt = received[0]["message"]["usage"]["input_tokens"]
    message = assembled(received)
    assert plain(message) == plain(whole)
    counts = message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"]
    assert counts == num_prompt


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"max_tokens": 3, "temperature": 0}, "max_tokens"),
        ({"forced": "One two three.", "stop_sequences": ["two"]}, "stop_sequence"),
        ({"forced": "Yes."}, "end_turn"),
    ],
)
def test_why_it_ended(server: Server, options: dict[str, Any], reason: str) -> None:
    whole = post(server, **options).json()
    assert whole["stop_reason"] == reason
    assert whole["stop_sequence"] == ("two" if reason == "stop_sequence" else None)
    last = events(post(server, stream=True, **options))[-2]
    assert last["delta"] == {"stop_reason": reason, "stop_sequence": whole["stop_sequence"]}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_forced_calls(server: Server, choice: dict[str, Any]) -> None:
    only_one = choice | {"disable_parallel_tool_use": True}
    off: dict[str, Any] = {"thinking": {"type": "disabled"}}
    answer = post(server, tools=[WEATHER], tool_choice=only_one, **off).json()
    (call,) = answer["content"]
    assert (call["type"], call["input"]) == ("tool_use", {"city": "Paris"})


def test_a_call_and_its_result_go_back(server: Server) -> None:
    first = post(server, forced=ANSWER, tools=[WEATHER], system="Be kind.").json()
    call = first["content"][-1]["id"]
    result = {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": "12 degrees"}]}
    messages = [
        *HELLO,
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    answer = post(server, forced="Cold.", messages=messages, tools=[WEATHER])
    assert answer.json()["content"][0]["text"] == "Cold.", answer.text


def test_the_form_of_an_answer_and_how_much_is_thought(server: Server) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    options: dict[str, Any] = {
        "output_config": {"format": {"type": "json_schema", "schema": schema | NO_MORE}}
    }
    off: dict[str, Any] = {"thinking": {"type": "disabled"}, "seed": 1}
    answer = post(server, **options, **off).json()
    (block,) = answer["content"]
    assert json.loads(block["text"])["a"] in (1, 2)
    # Beside tools it is that of text, and calls may come in its place.
    called = post(server, **options, **off, tools=[WEATHER], tool_choice={"type": "any"}).json()
    assert {block["type"] for block in called["content"]} == {"tool_use"}
    # As agents say that nothing is to be forgotten.
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    effort: dict[str, Any] = {"output_config": {"effort": "max"}, "context_management": edits}
    assert post(server, forced="Yes.", **effort).json()["content"][0]["text"] == "Yes."
    assert post(server, "/count_tokens", **effort).json()["input_tokens"] > 0


def test_an_answer_that_is_begun_is_gone_on_with(server: Server) -> None:
    begun = [*HELLO, {"role": "assistant", "content": [{"type": "text", "text": "The best is ("}]}]
    off: dict[str, Any] = {"thinking": {"type": "disabled"}}
    answer = post(server, forced="A)", messages=begun, **off).json()
    assert answer["content"][0]["text"] == "A)"
    # Neither an end of the turn nor another beginning is read behind it.
    options: dict[str, Any] = {"messages": [*HELLO, {"role": "assistant", "content": "The best is ("}]}
    chat = httpx.post(
        f"{server.url}/tokenize",
        json={**options, "continue_final_message": True, "enable_thinking": False},
        headers={"x-api-key": KEY},
        timeout=60,
    ).json()
    counted = post(server, "/count_tokens", **options, **off).json()
    assert counted["input_tokens"] == chat["count"]


def test_tokens_are_counted_as_they_are_read(server: Server) -> None:
    system = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    options: dict[str, Any] = {"system": system, "tools": [WEATHER], "thinking": {"type": "disabled"}}
    counted = post(server, "/count_tokens", **options).json()
    usage = post(server, forced="Yes.", **options).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_thoughts_end_when_their_budget_is_used_up(server: Server) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "<think>So"}]
    for budget, blocks in ((None, ["thinking"]), (5, ["thinking", "text"]), (0, ["text"])):
        thinking = {"type": "enabled", "budget_tokens": budget}
        answer = post(server, messages=begun, max_tokens=20, temperature=0, thinking=thinking)
        assert [block["type"] for block in answer.json()["content"]] == blocks
    options: dict[str, Any] = {
        "messages": begun,
        "temperature": 0,
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    for budget, num_reasoning_tokens in ((None, 20), (5, 6), (0, 1)):
        answer = httpx.post(
            f"{server.api}/chat/completions",
            json=options | {"max_tokens": 20, "thinking_token_budget": budget},
            headers={"x-api-key": KEY},
            timeout=60,
        )
        details = answer.json()["usage"]["completion_tokens_details"]
        assert details["reasoning_tokens"] == num_reasoning_tokens, "the mark is one of them"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]},
            "messages[0].content[0]",
        ),
        ({"tools": [{"name": "a b", "input_schema": SCHEMA}]}, "tools[0].name"),
        ({"tools": [{"name": "f", "input_schema": {"type": "array"}}]}, "tools[0].input_schema.type"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
        ({"mcp_servers": []}, "mcp_servers"),
        ({"thread": {"type": "create"}}, "thread"),
        ({"output_config": {"effort": "most"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema", "schema": BROKEN}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "json_schema", "schema": 1}}}, "output_config.format.schema"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_is_wrong_is_named_in_anthropics_shape(server: Server, body: dict[str, Any], named: str) -> None:
    answer = post(server, **body)
    assert answer.status_code == 400, answer.text
    error = answer.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert f"`{named}" in error["error"]["message"]


def test_a_client_that_would_have_its_conversation_kept_is_told_to_send_all_of_it(server: Server) -> None:
    """Tool runners of Anthropic's package go on without `thread` when they read this, and end without it."""
    details = post(server, thread={"type": "create"}).json()["error"]["details"]
    assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert "details" not in post(server, mcp_servers=[]).json()["error"]


def test_a_method_that_is_none_is_the_clients_fault(server: Server) -> None:
    answer = httpx.get(f"{server.api}/messages", headers={"x-api-key": KEY})
    assert answer.status_code == 405
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.headers["Allow"] == "POST"
    answer = httpx.put(f"{server.api}/responses/none", headers={"x-api-key": KEY})
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, DELETE, HEAD"


def test_models_have_what_anthropics_clients_read(server: Server) -> None:
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    (card,) = httpx.get(f"{server.api}/models", headers=headers).json()["data"]
    assert (card["type"], card["object"], card["display_name"]) == ("model", "model", card["id"])
    assert card["lifecycle"] == "active"
    assert datetime.fromisoformat(card["created_at"]).timestamp() == card["created"]


@pytest.mark.parametrize("path", ["/models/none", "/models/none/either"])
def test_errors_of_models_are_anthropics_where_its_clients_ask(server: Server, path: str) -> None:
    headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    theirs = httpx.get(f"{server.api}{path}", headers=headers)
    assert theirs.status_code == 404
    assert (theirs.json()["type"], theirs.json()["error"]["type"]) == ("error", "not_found_error")
    ours = httpx.get(f"{server.api}{path}", headers={"x-api-key": KEY})
    assert ours.status_code == 404
    assert ours.json()["error"]["type"] == "invalid_request_error"
    wrong = httpx.get(f"{server.api}/models", headers=headers | {"x-api-key": "wrong"})
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("path", ["", "/none"])
def test_requests_have_ids_where_anthropics_clients_look(server: Server, path: str) -> None:
    answer = post(server, path, forced="Yes")
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    assert answer.headers["request-id"].startswith("req_")


def test_a_wrong_key(server: Server) -> None:
    answer = httpx.post(f"{server.api}/messages", json={}, headers={"x-api-key": "wrong"})
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"


def test_an_image(text_server: Server) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (48, 40)).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]
    body = {"model": "vision", "max_tokens": 4, "messages": [{"role": "user", "content": content}]}
    answer = httpx.post(f"{text_server.api}/messages", json=body, timeout=60).json()
    assert answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"] > 4
    assert answer["stop_reason"] in ("max_tokens", "end_turn")
