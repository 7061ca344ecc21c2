"""What a request says of MCP servers: who they are, what may be called, what somebody has to approve."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sensorium.protocols.chat.content import ChatMessage
from sensorium.protocols.chat.tools import Tool
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.responses.item_ids import item_id, new_response_id
from sensorium.protocols.responses.mcp_results import failure_text, tool_outcome
from sensorium.protocols.responses.mcp_tools import (
    MAX_SERVERS,
    HostedTool,
    McpServer,
    choose_among,
    hosted_tools,
    read_listed,
    shown_tool,
)
from sensorium.protocols.responses.output_items import McpListTools, McpTool
from sensorium.protocols.responses.request import CheckedResponse, parse_response

RESPONSE = new_response_id()
SERVER: dict[str, Any] = {"type": "mcp", "server_label": "a", "server_url": "https://a.example/mcp"}


def parse(**fields: Any) -> CheckedResponse:  # noqa: ANN401
    return parse_response(json.dumps({"input": "a", **fields}).encode())


def server(**more: Any) -> McpServer:  # noqa: ANN401
    return parse(tools=[SERVER | more]).servers[0]


def tool(name: str, *, reads_only: bool = False) -> McpTool:
    return McpTool(name=name, input_schema={"type": "object"}, annotations={"readOnlyHint": reads_only})


def test_a_server_is_read_and_never_shown_with_its_keys() -> None:
    given = SERVER | {
        "headers": {"X-A": "b"},
        "authorization": "t0ken",
        "server_url": "https://a.example/?k=1",
    }
    found = parse(tools=[given]).servers[0]
    assert found.fields == (("X-A", "b"), ("Authorization", "Bearer t0ken"))
    assert "t0ken" not in repr(found)
    assert shown_tool(given) == SERVER | {"server_url": "https://a.example/"}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"server_url": None}, "server_url"),
        ({"server_url": 3}, "server_url"),
        ({"server_label": "a b"}, "server_label"),
        ({"server_label": None}, "server_label"),
        ({"connector_id": "connector_gmail"}, "connector_id"),
        ({"tunnel_id": "t"}, "tunnel_id"),
        ({"defer_loading": True}, "defer_loading"),
        ({"allowed_callers": ["programmatic"]}, "allowed_callers"),
        ({"require_approval": "sometimes"}, "require_approval"),
        ({"require_approval": {"often": {}}}, "require_approval"),
        ({"allowed_tools": 7}, "allowed_tools"),
        ({"headers": {"Host": "b"}}, "headers"),
        ({"headers": {"X A": "b"}}, "headers"),
        ({"headers": {"X-A": "b\r\nHost: c"}}, "headers.X-A"),
        ({"headers": {"Authorization": "b"}, "authorization": "c"}, "headers"),
        ({"authorization": "b\n"}, "authorization"),
        ({"colour": 1}, ""),
    ],
)
def test_what_is_wrong_is_named_and_secrets_are_not_told(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(tools=[SERVER | more])
    assert caught.value.param == f"tools[0].{param}".rstrip(".")
    assert "Host: c" not in caught.value.message


def test_labels_are_used_once_and_servers_are_few() -> None:
    with pytest.raises(BadRequestError, match="again"):
        parse(tools=[SERVER, SERVER])
    many = [SERVER | {"server_label": f"a{index}"} for index in range(MAX_SERVERS + 1)]
    with pytest.raises(BadRequestError, match="MCP servers"):
        parse(tools=many)


def test_approval_is_needed_unless_it_is_said_otherwise() -> None:
    f, g = tool("f", reads_only=True), tool("g")
    for approval, needed in (
        (None, (True, True)),
        ("always", (True, True)),
        ("never", (False, False)),
        ({"never": {"tool_names": ["f"]}}, (False, True)),
        ({"never": {"read_only": True}}, (False, True)),
        ({"always": {"tool_names": ["g"]}, "never": {}}, (False, True)),
        ({"always": {"tool_names": ["g"]}}, (True, True)),
    ):
        mcp_server = server(require_approval=approval)
        assert (mcp_server.needs_approval(f), mcp_server.needs_approval(g)) == needed, approval


def test_what_a_server_tells_is_sifted() -> None:
    schema = {"type": "object", "properties": {}}
    listed = [
        {"name": "f", "inputSchema": schema, "description": "F", "annotations": {"readOnlyHint": True}},
        {"name": "g"},
        {"name": "has space", "inputSchema": schema},
        {"name": "wrong", "inputSchema": {"type": "wizard"}},
        {"inputSchema": schema},
        "f",
    ]
    assert [each.name for each in read_listed(server(), listed)] == ["f", "g"]
    assert [each.name for each in read_listed(server(allowed_tools=["g"]), listed)] == ["g"]
    assert [each.name for each in read_listed(server(allowed_tools={"read_only": True}), listed)] == ["f"]


def test_a_name_that_is_taken_is_shown_with_its_servers_label() -> None:
    one, two = parse(tools=[SERVER, SERVER | {"server_label": "b"}]).servers
    lists = [McpListTools(id=label, server_label=label, tools=[tool("f"), tool("g")]) for label in ("a", "b")]
    found = hosted_tools((one, two), lists, {"g"})
    assert {name: (each.server.label, each.tool.name) for name, each in found.items()} == {
        "f": ("a", "f"),
        "a.g": ("a", "g"),
        "b.f": ("b", "f"),
        "b.g": ("b", "g"),
    }
    failed = McpListTools(id="a", server_label="a", tools=[], error="gone")
    assert hosted_tools((one,), [failed], ()) == {}


def test_tool_choice_may_name_a_server_or_its_tool() -> None:
    hosted = {"f": HostedTool(server(), tool("f")), "x": HostedTool(server(), tool("g"))}
    functions = (Tool("h", {}),)

    def chosen(choice: Any) -> list[str]:  # noqa: ANN401
        return [each.name for each in choose_among(functions, hosted, choice, is_parallel=True).tools]

    assert chosen(None) == ["h", "f", "x"]
    assert chosen({"type": "mcp", "server_label": "a"}) == ["f", "x"]
    assert chosen({"type": "mcp", "server_label": "a", "name": "g"}) == ["x"]
    assert chosen({"type": "function", "name": "h"}) == ["h"]
    some = [{"type": "function", "name": "h"}, {"type": "mcp", "server_label": "a", "name": "g"}]
    assert chosen({"type": "allowed_tools", "mode": "auto", "tools": some}) == ["h", "x"]
    assert chosen({"type": "allowed_tools", "mode": "required", "tools": some[1:]}) == ["x"]
    assert chosen("none") == []
    for choice, param in (
        ({"type": "mcp", "server_label": "b"}, "tool_choice.server_label"),
        ({"type": "mcp", "server_label": "a", "name": 1}, "tool_choice.name"),
        ({"type": "function", "name": "f"}, "tool_choice.name"),
        ("sometimes", "tool_choice"),
    ):
        with pytest.raises(BadRequestError) as caught:
            parse(tools=[SERVER], tool_choice=choice)
        assert caught.value.param == param


def in_short(messages: tuple[ChatMessage, ...]) -> list[tuple[str, object, object]]:
    return [
        (
            each.role,
            each.content,
            each.extra.get("tool_call_id") or [call["id"] for call in each.extra.get("tool_calls", ())],
        )
        for each in messages
    ]


def test_items_of_calls_are_read_as_calls_with_their_results() -> None:
    first, second, third = (item_id("mcp", RESPONSE, 0, each) for each in ("c1", "c2", "c3"))
    shared = {"type": "mcp_call", "server_label": "a", "name": "f", "arguments": "{}"}
    mcp_server = parse(
        input=[
            {"role": "user", "content": "Hm?"},
            {"type": "mcp_list_tools", "id": "l", "server_label": "a", "tools": [], "error": None},
            shared | {"id": first, "output": "one", "error": None, "status": "completed"},
            shared
            | {"id": second, "output": None, "error": {"type": "http_error", "message": "gone", "code": 1}},
            {"type": "message", "role": "assistant", "content": "And"},
            shared | {"id": third, "output": "three"},
        ]
    )
    assert in_short(mcp_server.read.messages) == [
        ("user", "Hm?", []),
        ("assistant", "", ["c1", "c2"]),
        ("tool", "one", "c1"),
        ("tool", "The call failed: gone", "c2"),
        ("assistant", "And", ["c3"]),
        ("tool", "three", "c3"),
    ]
    assert [each.server_label for each in mcp_server.read.listed] == ["a"]


@pytest.mark.parametrize("status", ["in_progress", "calling", "incomplete"])
def test_a_call_that_was_not_made_is_passed_over(status: str) -> None:
    call = {"type": "mcp_call", "id": item_id("mcp", RESPONSE, 0, "c1"), "server_label": "a", "name": "f"}
    mcp_server = parse(
        input=[{"role": "user", "content": "Hm?"}, call | {"arguments": '{"a', "status": status}]
    )
    assert in_short(mcp_server.read.messages) == [("user", "Hm?", [])]


def test_approvals_have_a_place_for_their_results() -> None:
    one, two = (item_id("mcpr", RESPONSE, 0, each) for each in ("c1", "c2"))
    request = {"type": "mcp_approval_request", "server_label": "a", "name": "f", "arguments": "{}"}
    response = {"type": "mcp_approval_response"}
    items: list[Any] = [
        {"role": "user", "content": "Hm?"},
        request | {"id": one},
        request | {"id": two},
        response | {"approval_request_id": one, "approve": True},
        response | {"approval_request_id": two, "approve": False, "reason": "no"},
    ]
    mcp_server = parse(input=items)
    assert in_short(mcp_server.read.messages)[1:] == [
        ("assistant", "", ["c1", "c2"]),
        ("tool", "", "c1"),
        ("tool", "The user declined this call: no", "c2"),
    ]
    assert [(each.request_id, each.is_given, each.place) for each in mcp_server.read.approvals] == [
        (one, True, 2),
        (two, False, 3),
    ]
    made = {"type": "mcp_call", "id": item_id("mcp", RESPONSE, 0, "c1"), "server_label": "a", "name": "f"}
    mcp_server = parse(input=[*items, made | {"output": "x", "arguments": "{}", "approval_request_id": one}])
    assert in_short(mcp_server.read.messages)[2] == ("tool", "x", "c1")
    assert [each.request_id for each in mcp_server.read.approvals] == [two]
    for wrong, param in (
        ({"approve": True}, "approval_request_id"),
        ({"approval_request_id": one}, "approve"),
    ):
        with pytest.raises(BadRequestError) as caught:
            parse(input=[*items[:3], response | wrong])
        assert caught.value.param == f"input[3].{param}"


def test_results_are_text() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "…", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "b:", "text": "b"}},
        {"type": "resource_link", "uri": "c:"},
        7,
    ]
    assert tool_outcome({"content": content}).output == "a\n[image left out]\nb\nc:"
    assert tool_outcome({"content": [], "structuredContent": {"a": 1}}).output == '{"a":1}'
    failed = tool_outcome({"content": content[:1], "isError": True})
    assert (failed.output, failed.text) == (None, "The call failed: a")
    assert failure_text("gone") == "The call failed: gone"
    assert failure_text(None) == "The call failed."
