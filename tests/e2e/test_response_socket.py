"""`/v1/responses` as a WebSocket: real sockets, a random model, and clients that do not behave.

What the model is to say is forced: it is the only choice there is.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai.types.responses import ResponsesServerEvent
from pydantic import TypeAdapter
from sensorium.actors.config.server import EngineConfig, ListenConfig, RealtimeConfig
from support.chat_templates import QWEN3
from support.server import Server, make_config, running_server, wait_until
from support.text_folder import QwenShape, make_qwen3_folder
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

pytestmark = pytest.mark.slow

KEY, OTHER_KEY = "one", "another"
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
NOW = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}, "strict": True}
SCHEMA = {"type": "json_schema", "name": "a", "schema": {"type": "object", "additionalProperties": False}}
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
LIMITS = RealtimeConfig(max_sessions=3, idle_s=5.0, max_append_mib=0.5)
EVENT: TypeAdapter[ResponsesServerEvent] = TypeAdapter(ResponsesServerEvent)

Event = dict[str, Any]


@contextmanager
def serving(folder: str, limits: RealtimeConfig = LIMITS, drain_s: float = 5.0) -> Iterator[Server]:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB", max_running=8)
    listen = ListenConfig(port=0, drain_s=drain_s, api_key=(KEY, OTHER_KEY), send_timeout_s=1.0)
    with running_server(make_config(folder, engine=engine, listen=listen, realtime=limits)) as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model with Qwen3's template."""
    folder = make_qwen3_folder(tmp_path_factory.mktemp("chat") / "chat", shape=QwenShape(max_positions=4096))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": QWEN3}))
    return str(folder)


@pytest.fixture(scope="module")
def keyed_server(folder: str) -> Iterator[Server]:
    with serving(folder) as server:
        yield server


@pytest.fixture
def server(keyed_server: Server) -> Iterator[Server]:
    with keyed_server.free_loop():
        yield keyed_server
    keyed_server.wait_quiet()
    wait_until(lambda: not keyed_server.service.on_drain)


class Socket:
    """A client that hides nothing; what it is told is read strictly, as OpenAI's package has it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def create(self, forced: str | None = None, given: object = "Hello", **more: object) -> None:
        """Ask for a response."""
        if forced is not None:
            more["structured_outputs"] = {"choice": [forced]}
        self.send({"type": "response.create", "model": "chat", "input": given, **more})

    def send(self, event: Event) -> None:
        self.connection.send(json.dumps(event))

    def receive(self) -> Event:
        frame = self.connection.recv(60)
        EVENT.validate_json(frame, strict=True)
        event: Event = json.loads(frame)
        return event

    def events(self) -> list[Event]:
        """The events up to the last of a response."""
        events = [self.receive()]
        while events[-1]["type"] not in ENDS:
            events.append(self.receive())
        return events

    def response(self, forced: str | None = None, given: object = "Hello", **more: object) -> Event:
        """Ask for a response, and wait for it."""
        self.create(forced, given, **more)
        events = self.events()
        assert events[-1]["type"] == "response.completed", events[-1]
        assert [each["sequence_number"] for each in events] == list(range(len(events)))
        found: Event = events[-1]["response"]
        return found

    def refused(self, given: object = "Hello", **more: object) -> tuple[int, str, str | None]:
        """Ask for what is refused: its status, code and field."""
        self.create(None, given, **more)
        return refusal(self.receive())

    def closed(self) -> int:
        """Wait for the close: its code."""
        with pytest.raises(ConnectionClosed) as caught:
            self.receive()
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code


def refusal(event: Event) -> tuple[int, str, str | None]:
    assert event["type"] == "error", event
    return event["status"], event["error"]["code"], event["error"]["param"]


def count(server: Server, status: int) -> float:
    """Responses so far that were counted with this status."""
    labels = {"route": "/v1/responses", "status": str(status)}
    return server.service.metrics.registry.get_sample_value("sensorium_requests_total", labels) or 0.0


def text_of(response: Event) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


@contextmanager
def opened(server: Server, key: str = KEY, **options: Any) -> Iterator[Socket]:  # noqa: ANN401 (handed on)
    url = f"ws://127.0.0.1:{server.port}/v1/responses?model=chat"
    headers = {"Authorization": f"Bearer {key}"}
    options = {"max_size": None, "compression": None, "additional_headers": headers, **options}
    with connect(url, **options) as connection:
        yield Socket(connection)


def test_the_address_may_name_the_model_and_nothing_else(server: Server) -> None:
    with opened(server) as socket:
        assert socket.response("Yes.", "Sure?", model=None, store=False)["model"] == "chat"
    url = f"ws://127.0.0.1:{server.port}/v1/responses?temperature=0"
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(url, additional_headers={"Authorization": f"Bearer {KEY}"}),
    ):
        pass
    assert json.loads(refused.value.response.body or b"")["error"]["param"] == "temperature"


def test_a_conversation_of_which_nothing_is_kept_goes_on_on_its_socket_alone(server: Server) -> None:
    num_kept = len(server.service.responses)
    with opened(server) as mine, opened(server) as other:
        first = mine.response("Good day.", store=False, instructions="Be kind.")
        assert (text_of(first), first["store"]) == ("Good day.", False)
        second = mine.response("Noon.", "When?", store=False, previous_response_id=first["id"])
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        lost = (400, "previous_response_not_found", "previous_response_id")
        assert other.refused(previous_response_id=first["id"]) == lost
        item = {"type": "item_reference", "id": first["output"][0]["id"]}
        assert other.refused([item])[1] == "response_not_found"
        assert text_of(mine.response("Yes.", [item, {"role": "user", "content": "Sure?"}])) == "Yes."
        url, headers = f"{server.api}/responses/{first['id']}", {"Authorization": f"Bearer {KEY}"}
        assert httpx.get(url, headers=headers).status_code == 404
    wait_until(lambda: len(server.service.responses) == num_kept + 1)  # the one without `store`


def test_what_is_kept_is_had_by_every_way(server: Server) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    with opened(server) as mine:
        first = mine.response("Good day.")
    assert httpx.get(f"{server.api}/responses/{first['id']}", headers=headers).json() == first
    with opened(server) as again, opened(server, OTHER_KEY) as others:
        assert text_of(again.response("Noon.", previous_response_id=first["id"])) == "Noon."
        assert others.refused(previous_response_id=first["id"])[1] == "previous_response_not_found"


def test_a_call_sent_again_with_its_result_counts_once(server: Server) -> None:
    with opened(server) as mine:
        first = mine.response(CALL, tools=[NOW])
        call = first["output"][0]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "Noon."}
        known = mine.response("Noon.", [result], previous_response_id=first["id"], tools=[NOW])
        again = mine.response("Noon.", [call, result], previous_response_id=first["id"], tools=[NOW])
        assert known["usage"]["input_tokens"] == again["usage"]["input_tokens"]
        # Nothing new may be said: the model answers once more.
        assert text_of(mine.response("Yes.", [], previous_response_id=again["id"])) == "Yes."


def test_what_is_asked_meanwhile_waits_and_has_its_lane(server: Server) -> None:
    with opened(server) as mine:
        lanes = ["a", None, "b.1"]
        for number, lane in enumerate(lanes):
            mine.create(f"Number {number}.", **({} if lane is None else {"stream_id": lane}))
        for number, lane in enumerate(lanes):
            events = mine.events()
            assert {each.get("stream_id") for each in events} == {lane}
            assert text_of(events[-1]["response"]) == f"Number {number}."


def test_what_is_wrong_is_told_in_its_turn(server: Server) -> None:
    with opened(server) as mine:
        mine.create("Good day.")
        mine.connection.send("{")
        mine.connection.send(b"\xff\xfe")
        mine.connection.send("[1]")
        mine.connection.send('{"a":' + "[" * 1000)
        mine.send({"type": "response.steer", "stream_id": "s"})
        mine.send({"type": "response.cancel"})
        mine.create(background=True)
        mine.create(stream_id="not one")
        mine.create(no_such_field=1, stream_id="a")
        mine.create("Noon.", stream=True)  # as it is without saying so
        assert text_of(mine.events()[-1]["response"]) == "Good day."
        assert [refusal(mine.receive())[1] for _ in range(4)] == ["invalid_json"] * 4
        steered = mine.receive()
        assert (refusal(steered)[2], steered["stream_id"]) == ("type", "s")
        assert refusal(mine.receive())[2] == "response_id"
        assert refusal(mine.receive())[2] == "background"
        assert refusal(mine.receive()) == (400, "invalid_stream_id", "stream_id")
        unknown = mine.receive()
        assert (refusal(unknown)[1], unknown["stream_id"]) == ("unknown_parameter", "a")
        assert text_of(mine.events()[-1]["response"]) == "Noon."
        assert mine.refused(model="no")[:2] == (404, "model_not_found")


def test_a_warm_up_computes_the_prompt_and_says_nothing(server: Server) -> None:
    with opened(server) as mine:
        instructions = "Be very kind to everybody. " * 20
        warm = mine.response(instructions=instructions, store=False, generate=False)
        assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
        given = {"instructions": instructions, "previous_response_id": warm["id"]}
        after = mine.response("Good day.", "And you?", **given)
        details = after["usage"]["input_tokens_details"]
        assert details["cached_tokens"] > warm["usage"]["input_tokens"] // 2
        assert text_of(after) == "Good day."


def test_a_response_is_given_up(server: Server) -> None:
    with opened(server) as mine:
        mine.create()
        response = mine.receive()["response"]
        while mine.receive()["type"] != "response.output_text.delta":
            pass
        mine.send({"type": "response.cancel", "response_id": response["id"]})
        last = mine.events()[-1]
        assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
        mine.send({"type": "response.cancel", "response_id": response["id"]})  # late: no word about it
        assert text_of(mine.response("Good day.")) == "Good day."


def test_a_client_that_vanishes_ends_the_work_and_what_waits_behind_it(server: Server) -> None:
    before = count(server, 200) + count(server, 499)
    with opened(server) as mine:
        for _ in range(50):
            mine.create()
        while mine.receive()["type"] != "response.output_text.delta":
            pass
        mine.connection.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not server.service.on_drain)
    num_begun = count(server, 200) + count(server, 499) - before
    assert 1 <= num_begun <= 3, "a short answer may be made before its client is seen to leave"


def test_many_are_answered_in_turn(server: Server) -> None:
    with opened(server) as mine, opened(server) as other:
        for number in range(50):
            mine.create(f"Number {number}.")
        assert text_of(other.response("Noon.")) == "Noon."
        for number in range(50):
            assert text_of(mine.events()[-1]["response"]) == f"Number {number}."


def test_one_that_never_reads_is_cut(server: Server) -> None:
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", server.port))
        with opened(server, sock=raw, max_queue=1) as mine:
            form = SCHEMA | {"description": "x" * 200_000}  # which three of its events say again
            for _ in range(16):
                mine.create(text={"format": form})
            wait_until(lambda: not server.service.on_drain)


def test_who_may_not_open_one(server: Server) -> None:
    with pytest.raises(InvalidStatus) as wrong, opened(server, "wrong"):
        pass
    assert wrong.value.response.status_code == 401
    with pytest.raises(InvalidStatus) as foreign, opened(server, origin="https://evil.example"):
        pass
    assert foreign.value.response.status_code == 403
    with opened(server), opened(server), opened(server), pytest.raises(InvalidStatus) as many:
        opened(server, OTHER_KEY).__enter__()
    assert many.value.response.status_code == 503
    assert many.value.response.headers["Retry-After"]


def test_a_message_that_is_too_large(server: Server) -> None:
    with opened(server) as mine:
        mine.create(given="a" * LIMITS.max_message_bytes)
        assert mine.closed() == 1009


def test_an_idle_socket_is_closed(server: Server) -> None:
    with opened(server) as mine:
        assert text_of(mine.response("Good day.")) == "Good day."
        assert refusal(mine.receive())[1] == "websocket_connection_limit_reached"
        assert mine.closed() == 1000


def test_a_socket_is_closed_when_its_time_is_over(folder: str) -> None:
    limits = RealtimeConfig(max_session_s=1.0)
    with serving(folder, limits) as server, opened(server) as mine:
        mine.create(max_output_tokens=3000)  # is finished all the same
        assert mine.events()[-1]["type"] != "error"
        assert refusal(mine.receive())[1] == "websocket_connection_limit_reached"
        assert mine.closed() == 1000


def test_responses_are_counted(server: Server) -> None:
    before = count(server, 200), count(server, 400)
    with opened(server) as mine:
        mine.response("Good day.")
        mine.refused(previous_response_id="resp_none")
    assert (count(server, 200), count(server, 400)) == (before[0] + 1, before[1] + 1)


def test_a_drain_closes_what_is_idle_and_lets_responses_end(folder: str) -> None:
    with serving(folder) as server, opened(server) as idle, opened(server) as busy:
        busy.create(max_output_tokens=200, ignore_eos=True)
        assert busy.receive()["type"] == "response.created"
        busy.create()  # behind it: not begun any more
        server.run(server.stop.set)
        assert idle.closed() == 1001
        assert busy.events()[-1]["type"] == "response.incomplete"
        assert busy.closed() == 1001
        with pytest.raises((InvalidStatus, OSError)), opened(server):
            pass


def test_what_a_drain_does_not_wait_for_has_failed(folder: str) -> None:
    with serving(folder, drain_s=0.1) as server, opened(server) as mine:
        mine.create(max_output_tokens=3800, ignore_eos=True)
        assert mine.receive()["type"] == "response.created"
        server.run(server.stop.set)
        last = mine.events()[-1]
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "rate_limit_exceeded")
        assert mine.closed() == 1001
