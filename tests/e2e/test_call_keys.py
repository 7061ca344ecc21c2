"""Calls of providers that send no headers: the key comes by `start`, and nothing comes back before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from sensorium.actors.config.server import ListenConfig
from support.phone import Event, begin, call, of, read_all, send
from support.server import Server, make_config, running_server, wait_until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

pytestmark = pytest.mark.slow

KEY = "sk-of-the-operator"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    config = make_config("tiny-qwen3-asr", listen=ListenConfig(port=0, api_key=(KEY,)))
    with running_server(config) as server:
        yield server


def test_a_key_by_start_opens_a_call_and_is_told_to_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    header = {"Authorization": f"Bearer {KEY}"}
    address = server.realtime.replace("/realtime", "/calls/events")
    with connect(address, additional_headers=header) as supervisor, call(server.realtime) as socket:
        begin(socket, "inbound", key=KEY, name="Ada")
        socket.send(json.dumps({"event": "mark", "mark": {"name": "x" * 150}, "more": "x" * 200_000}))
        send(socket, "stop")
        events = read_all(socket)
        observed = [json.loads(supervisor.recv(10)) for _ in events[:-1]]
    assert observed == events[:-1]
    assert [event["event"] for event in observed] == ["call.started", "mark", "call.summary"]
    assert observed[0]["parameters"] == {"name": "Ada"}
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("sensorium")]
    assert ours
    assert KEY not in json.dumps([observed, ours])
    assert not server.service.pending_auth


@pytest.mark.parametrize(
    "parameters", [{}, {"key": ""}, {"key": "sk-another"}, {"key": "sk-another", "model": "none"}]
)
def test_without_a_key_that_is_accepted_no_call_begins(server: Server, parameters: dict[str, str]) -> None:
    with call(server.realtime) as socket:
        begin(socket, "inbound", **parameters)
        error, closed = read_all(socket)
    assert (error["code"], error["param"], closed["code"]) == ("invalid_api_key", "key", 1008)
    assert "sk-another" not in json.dumps(error)


def test_a_key_of_the_handshake_that_is_wrong_is_refused_at_once(server: Server) -> None:
    with pytest.raises(InvalidStatus, match="401"):
        connect(
            server.realtime.replace("/realtime", "/calls"),
            additional_headers={"Authorization": "Bearer sk-another"},
        )


def test_an_address_is_not_looked_at_before_the_key_was(server: Server) -> None:
    with call(server.realtime, "?model=none") as socket:
        begin(socket, "inbound", key="sk-another")
        assert read_all(socket)[0]["code"] == "invalid_api_key"
    with call(server.realtime, "?model=none") as socket:
        begin(socket, "inbound", key=KEY)
        assert read_all(socket)[0]["code"] == "model_not_found"


def test_strangers_do_not_pile_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more than may wait: any of those that wait gives way, and the others still begin."""
    pending_auth = server.service.pending_auth
    assert pending_auth.max_of_address >= 256, "as many as the address may have connections"
    monkeypatch.setattr(pending_auth, "max_of_address", 3)
    with ExitStack() as stack:
        first = [stack.enter_context(call(server.realtime)) for _ in range(3)]
        wait_until(lambda: len(pending_auth) == 3)
        sockets = [*first, stack.enter_context(call(server.realtime))]
        begin(sockets[3], "inbound", key=KEY)
        send(sockets[3], "stop")
        assert of(read_all(sockets[3]), "call.summary")
        assert len(pending_auth) == 2
        for socket in first:
            with suppress(ConnectionClosed):
                begin(socket, "inbound", key=KEY)
                send(socket, "stop")
        answers = [read_all(socket) for socket in first]
        assert sum(each == [{"event": "closed", "code": 1013}] for each in answers) == 1
        assert sum(bool(of(each, "call.summary")) for each in answers) == 2
    wait_until(lambda: not pending_auth)


def test_a_stranger_has_one_try_and_little_room(server: Server) -> None:
    large: Event = {"event": "connected", "more": "x" * 200_000}
    with call(server.realtime) as socket:
        socket.send(json.dumps(large))
        assert read_all(socket) == [{"event": "closed", "code": 1009}]
    with call(server.realtime) as socket:
        send(socket, "mark", mark={"name": "here"})
        with suppress(ConnectionClosed):  # it may be closed by then
            begin(socket, "inbound", key=KEY)
        assert [event.get("code") for event in read_all(socket)] == ["unexpected_event", 1008]
