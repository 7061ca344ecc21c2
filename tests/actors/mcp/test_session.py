"""MCP servers are asked where they may be, in time, and no more is taken than may be; else it is said why."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.config.mcp import McpConfig
from sensorium.actors.fetching.dns import Names
from sensorium.actors.mcp import json_rpc as messages
from sensorium.actors.mcp.client import MAX_CANCELLATIONS, McpClients, McpFailure
from sensorium.actors.mcp.json_rpc import EventData, result_in
from sensorium.actors.mcp.session import MAX_ANSWER_BYTES, McpSession
from sensorium.actors.telemetry.metrics import Metrics
from sensorium.protocols.responses.mcp_tools import McpServer
from support.file_host import Behave, FileHost, answer, file_host, redirect

pytestmark = pytest.mark.slow

HERE = ("127.0.0.1",)
INITIALIZED = {
    "protocolVersion": "2025-03-26",
    "capabilities": {},
    "serverInfo": {"name": "a", "version": "1"},
}


def clients(
    host: FileHost,
    *,
    networks: tuple[str, ...] = HERE,
    timeout_s: float = 60.0,
    resolve: Callable[[str, int], Sequence[str]] = lambda *_: HERE,
    metrics: Metrics | None = None,
) -> McpClients:
    config = McpConfig((host.url("/mcp"),), networks, timeout_s)
    return McpClients(config, Names(resolve), metrics or Metrics())


def session_of(
    host: FileHost, mcp_clients: McpClients, *, fields: tuple[tuple[str, str], ...] = ()
) -> McpSession:
    return McpSession(mcp_clients, McpServer(label="a", url=host.url("/mcp"), param="", fields=fields), "me")


def replies(*given: bytes | Behave) -> Behave:
    """Answers to one request after the other."""
    left = list(given)

    async def behave(stream: trio.SocketStream, path: str) -> None:
        found = left.pop(0)
        if isinstance(found, bytes):
            await stream.send_all(found)
        else:
            await found(stream, path)

    return behave


def result(found: object, number: int) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": number, "result": found}).encode()
    return answer(body, head="Content-Type: application/json\r\n")


async def failure(host: FileHost, *after: bytes | Behave, **options: object) -> McpFailure:
    """Of listing, where the server answers so after its beginning."""
    began = [result(INITIALIZED, 1), answer(status=202)] if after else []
    host.answers["/mcp"] = replies(*began, *after)
    mcp_clients = clients(host, **options)  # type: ignore[arg-type]
    with pytest.raises(McpFailure) as caught:
        await session_of(host, mcp_clients).tools()
    return caught.value


async def test_what_a_server_answers_wrong_is_told() -> None:
    async with file_host() as host:
        endless = {"tools": [], "nextCursor": "again"}
        many = {"tools": [{"name": f"f{index}"} for index in range(257)]}
        events = answer(b'data: {}\n\ndata: {"id":', head="Content-Type: text/event-stream\r\n")
        for sent, message in (
            (answer(b"<html>", head="Content-Type: text/html\r\n"), "JSON-RPC"),
            (answer(b"[" * 100_000), "JSON-RPC"),
            (answer(b"[]"), "without a result"),
            (events, "without a result"),
            (result([], 2), "no result"),
            (result({}, 2), "no list"),
            (result(many, 2), "more than 256 tools"),
            (answer(b"a" * (MAX_ANSWER_BYTES + 1)), "bytes"),
            (answer(b"", head="Content-Encoding: gzip\r\n"), "packs"),
            (redirect("http://elsewhere.test/"), "status 302"),
            (answer(status=500), "status 500"),
            (b"nonsense\r\n\r\n", "proper HTTP"),
        ):
            assert message in str(await failure(host, sent)), message
        named = json.dumps({"jsonrpc": "2.0", "id": 1, "result": INITIALIZED}).encode()
        host.answers["/mcp"] = replies(answer(named, head="Mcp-Session-Id: \xe9t\xe9\r\n"))
        with pytest.raises(McpFailure, match="session unreadably"):
            await session_of(host, clients(host)).tools()
        host.answers["/mcp"] = replies(
            result(INITIALIZED, 1), answer(status=202), *(result(endless, n + 2) for n in range(16))
        )
        assert await session_of(host, clients(host)).tools() == []


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(stream: trio.SocketStream, _: str) -> None:
        await stream.receive_some()  # until the other side goes

    async with file_host() as host:
        assert "within 0.3 s" in str(await failure(host, silent, timeout_s=0.3))


async def test_addresses_are_vetted_when_they_are_resolved() -> None:
    async with file_host() as host:
        assert "no address" in str(await failure(host, networks=()))
        assert "no address" in str(await failure(host, resolve=lambda *_: ["10.0.0.1"]))
        assert host.requested == []


async def test_the_version_that_was_agreed_on_and_the_session_go_with_every_request(
    nursery: trio.Nursery,
) -> None:
    async with file_host() as host:
        began = json.dumps({"jsonrpc": "2.0", "id": 1, "result": INITIALIZED}).encode()
        host.answers["/mcp"] = replies(
            answer(began, head="Mcp-Session-Id: s1\r\n"),
            answer(status=202),
            result({"tools": []}, 2),
            answer(),
        )
        mcp_clients = clients(host)
        await nursery.start(mcp_clients.run)
        session = session_of(host, mcp_clients, fields=(("X-Key", "k"),))
        await session.tools()
        session.leave()
        await came(lambda: len(host.heads) == 4)
        first, *others = host.heads
        assert b"POST /mcp " in first
        assert b"X-Key: k" in first
        assert first.count(b"\r\nAccept:") == 1
        assert b"Mcp-Session-Id" not in first
        for head in others:
            assert b"Mcp-Session-Id: s1" in head
            assert b"MCP-Protocol-Version: 2025-03-26" in head
        assert others[-1].startswith(b"DELETE ")


async def test_a_request_that_took_too_long_is_taken_back_before_the_session_ends(
    nursery: trio.Nursery,
) -> None:
    taken_back: list[object] = []
    waits = trio.Event()

    async def silent(stream: trio.SocketStream, _: str) -> None:
        waits.set()
        while await stream.receive_some():  # until the other side goes
            pass

    async def read_on(stream: trio.SocketStream, _: str) -> None:
        body = host.heads[-1].partition(b"\r\n\r\n")[2]
        while not body.endswith(b"}"):
            body += await stream.receive_some()
        taken_back.append(json.loads(body))
        await stream.send_all(answer(status=202))

    async with file_host() as host:
        began = json.dumps({"jsonrpc": "2.0", "id": 1, "result": INITIALIZED}).encode()
        started = (answer(began, head="Mcp-Session-Id: s1\r\n"), answer(status=202))
        host.answers["/mcp"] = replies(*started, silent, read_on, silent, read_on, answer())
        metrics = Metrics()
        mcp_clients = clients(host, timeout_s=0.5, metrics=metrics)
        await nursery.start(mcp_clients.run)
        session = session_of(host, mcp_clients)
        outcome = await session.call("slow", {})
        assert "within 0.5 s" in outcome.text
        await came(lambda: len(taken_back) == 1)
        # And one that is given up before.
        waits = trio.Event()
        async with trio.open_nursery() as giving_up:
            giving_up.start_soon(session.call, "slow", {})
            await waits.wait()
            giving_up.cancel_scope.cancel()
        session.leave()
        await came(lambda: len(host.heads) == 7)
    assert [message_sent["method"] for message_sent in taken_back] == ["notifications/cancelled"] * 2  # type: ignore[index]
    assert [message_sent["params"]["requestId"] for message_sent in taken_back] == [2, 3]  # type: ignore[index]
    assert b"Mcp-Session-Id: s1" in host.heads[3]
    assert host.heads[-1].startswith(b"DELETE ")
    assert counts(metrics, host) == {("tools/call", "timeout"): 1, ("tools/call", "cancelled"): 1}


async def test_what_is_asked_is_counted_by_what_came_of_it() -> None:
    async with file_host() as host:
        failed = {"isError": True, "content": []}
        host.answers["/mcp"] = replies(
            result(INITIALIZED, 1),
            answer(status=202),
            result({"tools": []}, 2),
            result({"content": []}, 3),
            result(failed, 4),
            result([], 5),
            answer(status=500),
            b"nonsense\r\n\r\n",
        )
        metrics = Metrics()
        session = session_of(host, clients(host, metrics=metrics))
        await session.tools()
        for _ in range(5):
            await session.call("f", {})
        called = {("tools/call", kind): 1 for kind in ("ok", "tool", "protocol", "status", "unreachable")}
        assert counts(metrics, host) == {("tools/list", "ok"): 1, **called}
        of = {"server": host.url("/mcp"), "method": "tools/call"}
        assert metrics.registry.get_sample_value("sensorium_mcp_call_seconds_count", of) == 5
        assert metrics.registry.get_sample_value("sensorium_mcp_calls_active") == 0


async def test_a_session_that_the_server_forgot_begins_again() -> None:
    def begun(name: str, number: int) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", "id": number, "result": INITIALIZED}).encode()
        return answer(body, head=f"Mcp-Session-Id: {name}\r\n")

    async with file_host() as host:
        host.answers["/mcp"] = replies(
            begun("s1", 1),
            answer(status=202),
            answer(status=404),
            begun("s2", 3),
            answer(status=202),
            result({"content": []}, 4),
        )
        session = session_of(host, clients(host))
        assert "404" in (await session.call("f", {})).text
        assert (await session.call("f", {})).error is None
        assert b"Mcp-Session-Id" not in host.heads[3]
        assert host.heads[-1].count(b"Mcp-Session-Id: ") == host.heads[-1].count(b"Mcp-Session-Id: s2") == 1
        assert host.heads[-1].count(b"MCP-Protocol-Version") == 1


async def test_whoever_has_much_to_take_back_leaves_room_for_others(nursery: trio.Nursery) -> None:
    num_notified = 0

    async def notify() -> None:
        nonlocal num_notified
        num_notified += 1
        await trio.sleep_forever()

    async with file_host() as host:
        mcp_clients = clients(host)
        await nursery.start(mcp_clients.run)
        for _ in range(2 * MAX_CANCELLATIONS):
            mcp_clients.notify_later(notify, "me")
        before = mcp_clients.num_cancellations
        assert before < MAX_CANCELLATIONS
        mcp_clients.notify_later(notify, "you")
        assert mcp_clients.num_cancellations == before + 1
        await came(lambda: num_notified == before + 1)


async def test_a_stream_of_tiny_events_is_read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are thousands in one read."""
    num_on = Counter[threading.Thread]()

    def counted(data: bytes, number: int) -> dict[str, Any] | None:
        num_on[threading.current_thread()] += 1
        return result_in(data, number)

    monkeypatch.setattr(messages, "result_in", counted)
    done = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": []}}).encode()
    stream = answer(
        b"data:{}\n\n" * 50_000 + b"data:%b\n\n" % done, head="Content-Type: text/event-stream\r\n"
    )
    async with file_host() as host:
        host.answers["/mcp"] = replies(result(INITIALIZED, 1), answer(status=202), stream)
        assert await session_of(host, clients(host)).tools() == []
    assert num_on.total() >= 50_000
    assert num_on[threading.current_thread()] < 5_000


async def came(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 (what is waited for is a server's list)
            await trio.sleep(0.01)


def counts(metrics: Metrics, host: FileHost) -> dict[tuple[str, str], float]:
    (family,) = metrics.mcp_calls.collect()
    found = [each for each in family.samples if each.name.endswith("_total")]
    assert {each.labels["server"] for each in found} == {host.url("/mcp")}
    return {(each.labels["method"], each.labels["outcome"]): each.value for each in found}


@given(cuts=st.lists(st.integers(1, 9)), ending=st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_the_same_however_they_are_cut(cuts: list[int], ending: bytes) -> None:
    stream = b": hi\n\nid: 1\ndata: {\ndata:}\n\nevent: a\n\ndata: x y\n\ndata: lost".replace(b"\n", ending)
    events, found = EventData(), []
    for size in cuts:
        found += events.push(stream[:size])
        stream = stream[size:]
    assert found + events.push(stream) == [b"{\n}", b"x y"]
