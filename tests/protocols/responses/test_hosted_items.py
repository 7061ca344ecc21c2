"""What a server works on itself has its place in a response, is told when it is done, and is kept."""

from __future__ import annotations

from sensorium.actors.http.responses.row_codec import from_row, to_row
from sensorium.actors.http.responses.shape import messages_of
from sensorium.protocols.chat.answer_events import (
    ArgumentsAdded,
    CallBegun,
    CallEnded,
    Event,
    TextAdded,
)
from sensorium.protocols.responses.item_ids import call_id_of, new_response_id
from sensorium.protocols.responses.mcp_results import CallOutcome, protocol_error
from sensorium.protocols.responses.mcp_tools import HostedTool, McpServer, ToolFilter
from sensorium.protocols.responses.output_items import (
    McpApprovalRequest,
    McpCall,
    McpListTools,
    McpTool,
)
from sensorium.protocols.responses.writer import ResponseWriter
from support.kept_responses import MINE, kept

F, G = (McpTool(name=name, input_schema={"type": "object"}) for name in ("f", "g"))
SERVER = McpServer(label="a", url="http://a.example/", param="", never=ToolFilter(["f"]))
HOSTED = {"f": HostedTool(SERVER, F), "a.g": HostedTool(SERVER, G)}
CALLS: list[Event] = [
    TextAdded("I look."),
    CallBegun(0, "c1", "f"),
    ArgumentsAdded(0, '{"x": 1}'),
    CallEnded(0),
    CallBegun(1, "c2", "a.g"),
    ArgumentsAdded(1, "{}"),
    CallEnded(1),
    CallBegun(2, "c3", "f"),
    ArgumentsAdded(2, "{}"),
    CallEnded(2),
]


def writer() -> ResponseWriter:
    found = ResponseWriter(kept(new_response_id()).response)
    found.hosted = HOSTED
    found.begin()
    return found


def test_calls_end_in_any_order_at_their_places() -> None:
    made = writer()
    made.add(CALLS)
    made.end_round(is_cut=False)
    first, second = made.take_calls()
    assert (first.place, second.place) == (1, 3)
    assert made.take_calls() == []
    made.end_call(second, protocol_error(1, "no"))
    events = made.end_call(first, CallOutcome("one"))
    assert [getattr(event, "output_index", None) for event in events] == [1, 1]
    text, call, request, failed = made.items
    assert text.id
    assert isinstance(call, McpCall)
    assert (call.status, call.output, call_id_of(call.id)) == ("completed", "one", "c1")
    assert isinstance(request, McpApprovalRequest)
    assert (request.name, call_id_of(request.id)) == ("g", "c2")
    assert isinstance(failed, McpCall)
    assert (failed.status, failed.output) == ("failed", None)
    message, *results = messages_of(made.items, HOSTED)
    calls = [(each["id"], each["function"]["name"]) for each in message.extra["tool_calls"]]
    assert calls == [("c1", "f"), ("c2", "a.g"), ("c3", "f")]
    assert [(each.content, each.extra["tool_call_id"]) for each in results] == [
        ("one", "c1"),
        ("The call failed: no", "c3"),
    ]


def test_what_is_cut_is_not_called_and_asks_nobody() -> None:
    for end, statuses in ((3, ["incomplete"]), (6, ["calling"]), (9, ["calling", "incomplete"])):
        made = writer()
        made.add(CALLS[:end])
        made.end_round(is_cut=True)
        calls = [item for item in made.items if isinstance(item, McpCall)]
        assert [call.status for call in calls] == statuses
        assert sum(isinstance(item, McpApprovalRequest) for item in made.items) == (end == 9)


def test_what_was_listed_is_kept_in_a_file() -> None:
    events = McpListTools(id="l", server_label="a", tools=[F])
    before = kept("resp_1")
    before.listed = (events,)
    assert from_row(MINE, to_row(before)).listed == (events,)
