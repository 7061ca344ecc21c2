"""Tools of MCP servers in `/v1/responses`, with OpenAI's package: listed, called, approved, refused, failing.

The model is random; calls are forced where one must come, and what it says about results does not matter.
"""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from sensorium.actors.config.server import EngineConfig, McpConfig
from sensorium.actors.http.responses import tool_rounds as response_rounds
from support.mcp_server import McpHost, mcp_server, text
from support.server import Server, make_config, running_server, wait_until
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def shared_host() -> Iterator[McpHost]:
    with mcp_server() as host:
        yield host


@pytest.fixture
def host(shared_host: McpHost) -> McpHost:
    fresh = McpHost(shared_host.url)
    for each in dataclasses.fields(McpHost):
        setattr(shared_host, each.name, getattr(fresh, each.name))
    return shared_host


@pytest.fixture(scope="module")
def mcp_serving(chat_folder: str, shared_host: McpHost) -> Iterator[Server]:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB", max_running=8)
    allowed = (shared_host.url, "http://127.0.0.1:9/mcp")
    mcp = McpConfig(allowed_mcp_servers=allowed, allowed_mcp_networks=("127.0.0.1",))
    config = dataclasses.replace(make_config(chat_folder, engine=engine), mcp=mcp)
    with running_server(config) as server:
        yield server


@pytest.fixture
def server(mcp_serving: Server) -> Iterator[Server]:
    with mcp_serving.left_quiet():
        yield mcp_serving
    wait_until(lambda: not mcp_serving.service.mcp.num_cancellations, timeout_s=60)


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.api, api_key="none", max_retries=0) as client:
        yield client


def named(host: McpHost, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "type": "mcp",
        "server_label": "clock",
        "server_url": host.url,
        "require_approval": "never",
        "allowed_tools": ["now"],
        **more,
    }


def create(client: OpenAI, *tools: dict[str, Any], **more: Any) -> Any:  # noqa: ANN401
    """With a call that is forced first, unless it is said otherwise."""
    options: dict[str, Any] = {
        "input": "What time is it?",
        "tool_choice": "required",
        "max_output_tokens": 160,
        "extra_body": {"enable_thinking": False, "seed": 1},
        "tools": list(tools),
        **more,
    }
    responses: Any = client.responses
    answer = responses.create(model="chat", **options)
    if isinstance(answer, Response):
        Response.model_validate_json(answer.model_dump_json(exclude_unset=True, by_alias=True), strict=True)
    return answer


def kinds(answer: Any) -> list[str]:  # noqa: ANN401
    return [item.type for item in answer.output]


@pytest.mark.parametrize("sends_events", [True, False])
def test_tools_are_listed_and_called_and_the_answer_goes_on(
    client: OpenAI, host: McpHost, sends_events: bool
) -> None:
    host.sends_events, host.token = sends_events, "s3cret"
    answer = create(client, named(host, authorization="s3cret", headers={"X-Team": "a"}))
    assert kinds(answer)[:2] == ["mcp_list_tools", "mcp_call"]
    assert [tool.name for tool in answer.output[0].tools] == ["now"]
    call = answer.output[1]
    assert (call.status, call.name, call.output) == ("completed", "now", "noon")
    assert json.loads(call.arguments) == {}
    assert host.calls[0] == ("now", {})
    assert "message" in kinds(answer) or answer.status == "incomplete"
    assert host.methods[:4] == ["initialize", "notifications/initialized", "tools/list", "tools/list"]
    assert "s3cret" not in answer.model_dump_json()
    assert host.heads[0]["x-team"] == "a"
    assert host.heads[-1]["mcp-protocol-version"]
    # What the model was told in its second round is longer than what it was asked in its first.
    assert answer.usage.input_tokens > 2 * 40


def test_what_is_thought_counts_once(client: OpenAI, host: McpHost) -> None:
    forced = {"structured_outputs": {"choice": ["<think>\nHm.\n</think>\n\nNoon."]}}
    usage = create(client, named(host), tool_choice="auto", extra_body=forced).usage
    # However it falls into tokens, most are of what is thought; twice as many are more than there are.
    assert usage.output_tokens / 2 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens


def test_every_event_comes_in_order_and_joins_to_the_whole(client: OpenAI, host: McpHost) -> None:
    events = list(create(client, named(host), stream=True))
    for event in events:
        EVENT.validate_json(event.model_dump_json(exclude_unset=True, by_alias=True), strict=True)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    types = [event.type for event in events]
    assert types[:6] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.mcp_list_tools.in_progress",
        "response.mcp_list_tools.completed",
        "response.output_item.done",
    ]
    of_call = [event for event in events if getattr(event, "output_index", None) == 1]
    assert [event.type for event in of_call if not event.type.endswith("arguments.delta")] == [
        "response.output_item.added",
        "response.mcp_call.in_progress",
        "response.mcp_call_arguments.done",
        "response.mcp_call.completed",
        "response.output_item.done",
    ]
    deltas = [event.delta for event in of_call if event.type == "response.mcp_call_arguments.delta"]
    last = events[-1].response
    assert "".join(deltas) == last.output[1].arguments
    assert last.output[1].output == "noon"
    done = {event.output_index: event.item for event in events if event.type == "response.output_item.done"}
    assert [done[index].model_dump() for index in range(len(done))] == [
        item.model_dump() for item in last.output
    ]


def test_who_is_not_allowed_is_refused_by_name(client: OpenAI, host: McpHost) -> None:
    for url in (
        "https://mcp.example.com/mcp",
        f"{host.url}/../admin",
        host.url.replace("mcp", ""),
        "ftp://a",
    ):
        with pytest.raises(BadRequestError) as caught:
            create(client, named(host, server_url=url))
        assert caught.value.body["param"] == "tools[0].server_url"  # type: ignore[index]
    assert host.methods == []


def test_a_conversation_does_not_list_again_what_it_knows(client: OpenAI, host: McpHost) -> None:
    first = create(client, named(host), tool_choice="none")
    assert kinds(first)[0] == "mcp_list_tools"
    second = create(client, named(host), tool_choice="none", previous_response_id=first.id)
    assert "mcp_list_tools" not in kinds(second)
    third = create(client, named(host), previous_response_id=second.id)
    assert "mcp_list_tools" not in kinds(third)
    assert "mcp_call" in kinds(third)
    assert host.methods.count("tools/list") == 2, "one list of two pages"
    # The same with the items sent back, by who keeps nothing here.
    items: list[Any] = [{"role": "user", "content": "What time is it?"}]
    items += [item.model_dump(exclude_unset=True) for item in (*first.output, *third.output)]
    again = create(client, named(host), input=[*items, {"role": "user", "content": "And now?"}], store=False)
    assert "mcp_list_tools" not in kinds(again)
    assert "mcp_call" in kinds(again)


def test_a_call_that_needs_it_waits_for_approval(client: OpenAI, host: McpHost) -> None:
    tool = named(host, require_approval="always")
    options = create(client, tool)
    assert kinds(options) == ["mcp_list_tools", "mcp_approval_request"]
    assert options.status == "completed"
    assert host.calls == []
    request = options.output[-1]
    agreed = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    answer = create(client, tool, input=[agreed], previous_response_id=options.id, tool_choice="auto")
    assert kinds(answer)[0] == "mcp_call"
    assert answer.output[0].approval_request_id == request.id
    assert answer.output[0].output == "noon"
    assert len(host.calls) == 1
    # By items, without anything kept: the call that was made is not made again.
    items: list[Any] = [{"role": "user", "content": "What time is it?"}]
    items += [item.model_dump(exclude_unset=True) for item in options.output]
    by_items = create(client, tool, input=[*items, agreed], tool_choice="auto", store=False)
    assert by_items.output[0].output == "noon"
    items += [agreed, *(item.model_dump(exclude_unset=True) for item in by_items.output)]
    items.append({"role": "user", "content": "Thanks."})
    create(client, tool, input=items, tool_choice="none", store=False)
    assert len(host.calls) == 2


def test_a_call_that_is_declined_is_not_made(client: OpenAI, host: McpHost) -> None:
    tool = named(host, require_approval={"never": {"tool_names": ["other"]}})
    options = create(client, tool)
    declined = {
        "type": "mcp_approval_response",
        "approval_request_id": options.output[-1].id,
        "approve": False,
        "reason": "not now",
    }
    answer = create(client, tool, input=[declined], previous_response_id=options.id, tool_choice="none")
    assert "mcp_call" not in kinds(answer)
    assert host.calls == []
    with pytest.raises(BadRequestError) as caught:
        create(client, tool, input=[declined | {"approval_request_id": "mcpr_x"}])
    assert caught.value.body["param"] == "input[0].approval_request_id"  # type: ignore[index]


def test_what_fails_of_a_server_is_told_and_the_answer_goes_on(client: OpenAI, host: McpHost) -> None:
    host.results["now"] = lambda _: {"isError": True, **text("no clock")}
    failed = create(client, named(host)).output[1]
    assert (failed.status, failed.output, failed.error.type) == ("failed", None, "mcp_tool_execution_error")
    del host.results["now"]
    failed = create(client, named(host)).output[1]
    assert (failed.error.type, failed.error.code) == ("mcp_protocol_error", -32602)
    host.results["now"] = lambda _: text("a" * 2_000_000)
    failed = create(client, named(host)).output[1]
    assert "bytes" in failed.error.message
    gone = create(
        client, named(host, server_url="http://127.0.0.1:9/mcp"), tool_choice="auto", max_output_tokens=4
    )
    assert gone.output[0].error
    host.token = "another"
    assert "401" in create(client, named(host), tool_choice="auto", max_output_tokens=4).output[0].error


def test_rounds_and_calls_are_bounded(client: OpenAI, host: McpHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_rounds, "MAX_ROUNDS", 3)
    # All the model can ever say is the call.
    only: Any = {"extra_body": {"structured_outputs": {"choice": [CALL]}}}
    endless = create(client, named(host), tool_choice="auto", max_output_tokens=4000, **only)
    assert len(host.calls) == 3
    assert kinds(endless).count("mcp_call") == 3
    host.calls.clear()
    few = create(client, named(host), tool_choice="auto", max_output_tokens=4000, max_tool_calls=2, **only)
    assert len(host.calls) == 2
    calls = [item for item in few.output if item.type == "mcp_call"]
    assert [call.status for call in calls] == ["completed", "completed", "failed"]
    assert "2 calls" in calls[-1].error.message
    host.calls.clear()
    cut = create(client, named(host), tool_choice="auto", max_output_tokens=40, **only)
    assert cut.status == "incomplete"
    assert cut.usage.output_tokens <= 40
    assert len(host.calls) < 3
    assert cut.output[-1].status == "incomplete"


def test_a_form_is_that_of_the_text_behind_the_calls(client: OpenAI, host: McpHost) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    form = {"format": {"type": "json_schema", "name": "a", "schema": schema, "strict": True}}
    answer = create(client, named(host), text=form, max_tool_calls=2, max_output_tokens=2000)
    assert kinds(answer)[:2] == ["mcp_list_tools", "mcp_call"]
    assert answer.output[1].output == "noon"
    assert json.loads(answer.output_text)["a"] in (1, 2)
    events = list(create(client, named(host), text=form, stream=True, max_output_tokens=2000))
    assert events[-1].response.output_text == answer.output_text
    assert len(host.calls) >= 2


def test_in_the_background_a_call_ends_with_its_response(client: OpenAI, host: McpHost) -> None:
    done = create(client, named(host), background=True)
    wait_until(lambda: client.responses.retrieve(done.id).status in ("completed", "incomplete"), timeout_s=60)
    assert kinds(client.responses.retrieve(done.id))[:2] == ["mcp_list_tools", "mcp_call"]
    with slow_call(host) as called:
        endless = create(client, named(host), background=True)
        assert called.wait(60)
        assert client.responses.cancel(endless.id).status == "cancelled"
        wait_until(lambda: not client.responses.retrieve(endless.id).output, timeout_s=60)
        wait_until(lambda: host.methods[-2:] == ["notifications/cancelled", "DELETE"], timeout_s=60)
    assert len(host.taken_back) == 1


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_call_is_taken_back_when_the_client_leaves(
    server: Server, client: OpenAI, host: McpHost, is_streamed: bool
) -> None:
    body = {"input": "What time is it?", "tool_choice": "required", "enable_thinking": False, "seed": 1}
    body |= {"tools": [named(host)], "max_output_tokens": 160, "stream": is_streamed}
    before = cancelled_calls(server)
    with slow_call(host) as called:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
            line.sendall(post("/v1/responses", body))
            assert called.wait(60)
        wait_until(lambda: host.methods[-2:] == ["notifications/cancelled", "DELETE"], timeout_s=60)
    assert len(host.taken_back) == 1
    wait_until(lambda: cancelled_calls(server) == before + 1, timeout_s=60)
    create(client, named(host))  # and the server goes on


def post(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


@contextmanager
def slow_call(host: McpHost) -> Iterator[threading.Event]:
    """The tool does not answer within; set when it was called."""
    called, free = threading.Event(), threading.Event()

    def slow(_: dict[str, Any]) -> dict[str, Any]:
        called.set()
        free.wait(120)
        return text("late")

    host.results["now"] = slow
    try:
        yield called
    finally:
        free.set()
        host.results["now"] = lambda _: text("noon")


def cancelled_calls(server: Server) -> float:
    exported = httpx.get(f"{server.url}/metrics", timeout=60).text
    (counted,) = re.findall(
        r'^sensorium_mcp_calls_total\{method="tools/call",outcome="cancelled",.*\} (.*)$',
        exported,
        re.MULTILINE,
    ) or ["0"]
    return float(counted)


def test_a_function_of_the_clients_ends_the_round(client: OpenAI, host: McpHost) -> None:
    function = {"type": "function", "name": "here", "parameters": {"type": "object", "properties": {}}}
    both = '<tool_call>\n{"name": "here", "arguments": {}}\n</tool_call>\n' + CALL
    only: Any = {"extra_body": {"structured_outputs": {"choice": [both]}}}
    answer = create(
        client,
        function,
        named(host),
        tool_choice="auto",
        max_output_tokens=400,
        **only,
        parallel_tool_calls=True,
    )
    assert kinds(answer) == ["mcp_list_tools", "function_call", "mcp_call"]
    assert host.calls == [("now", {})]
    result = {"type": "function_call_output", "call_id": answer.output[1].call_id, "output": "here"}
    more = create(
        client, function, named(host), input=[result], previous_response_id=answer.id, tool_choice="none"
    )
    assert more.status in ("completed", "incomplete")


def test_a_named_server_is_called(client: OpenAI, host: McpHost) -> None:
    choice = {"type": "mcp", "server_label": "clock", "name": "erase"}
    host.results["erase"] = lambda _: {"content": [], "structuredContent": {"gone": 1}}
    answer = create(client, named(host, allowed_tools=None), tool_choice=choice)
    assert (answer.output[1].name, answer.output[1].output) == ("erase", '{"gone":1}')
    with pytest.raises(BadRequestError, match=r"tool_choice\.name"):
        create(client, named(host), tool_choice=choice)


def test_on_a_websocket(server: Server, host: McpHost) -> None:
    options = {"type": "response.create", "input": "What time is it?", "tools": [named(host)], "store": False}
    options |= {"max_output_tokens": 160, "enable_thinking": False, "tool_choice": "required", "seed": 1}
    with connect(f"ws://127.0.0.1:{server.port}/v1/responses", max_size=None) as opened:
        found: dict[str, Any] = {}
        for more in ({"generate": False}, {}):
            opened.send(json.dumps(options | more | {"previous_response_id": found.get("id")}))
            event: dict[str, Any] = {"type": ""}
            while event["type"] not in ("response.completed", "response.incomplete", "error"):
                event = json.loads(opened.recv(60))
            found = event["response"]
            assert bool(host.calls) == (not more)
    assert [item["type"] for item in found["output"]][:2] == ["mcp_list_tools", "mcp_call"]
