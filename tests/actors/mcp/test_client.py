"""MCP servers are asked where they may be, in time, and no more is taken than may be; else it is said why."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.fetching.names import Names
from sensorium.actors.mcp.client import MAX_ANSWER_BYTES, McpClients, McpFailure
from sensorium.actors.mcp.messages import EventData
from sensorium.actors.mcp_config import McpConfig
from sensorium.protocols.mcp_tools import McpServer
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
) -> McpClients:
    config = McpConfig((host.url("/mcp"),), networks, timeout_s)
    return McpClients(config, Names(resolve))


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
    asked = clients(host, **options)  # type: ignore[arg-type]
    server = McpServer(label="a", url=host.url("/mcp"), param="")
    with pytest.raises(McpFailure) as caught:
        await asked.open(server, "me").tools()
    return caught.value


async def test_what_a_server_answers_wrong_is_told() -> None:
    async with file_host() as host:
        endless = {"tools": [], "nextCursor": "again"}
        many = {"tools": [{"name": f"f{index}"} for index in range(257)]}
        events = answer(b'data: {}\n\ndata: {"id":', head="Content-Type: text/event-stream\r\n")
        for sent, said in (
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
            assert said in str(await failure(host, sent)), said
        host.answers["/mcp"] = replies(
            result(INITIALIZED, 1), answer(status=202), *(result(endless, n + 2) for n in range(16))
        )
        server = McpServer(label="a", url=host.url("/mcp"), param="")
        assert await clients(host).open(server, "").tools() == []


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(stream: trio.SocketStream, _: str) -> None:
        await stream.receive_some()  # until the other side goes

    async with file_host() as host:
        assert "within 0.3 s" in str(await failure(host, silent, timeout_s=0.3))


async def test_addresses_are_vetted_when_they_are_resolved() -> None:
    async with file_host() as host:
        assert "no address" in str(await failure(host, networks=()))
        assert "no address" in str(await failure(host, resolve=lambda *_: ["10.0.0.1"]))
        assert host.asked == []


async def test_the_version_that_was_agreed_on_and_the_session_go_with_every_request() -> None:
    async with file_host() as host:
        began = json.dumps({"jsonrpc": "2.0", "id": 1, "result": INITIALIZED}).encode()
        host.answers["/mcp"] = replies(
            answer(began, head="Mcp-Session-Id: s1\r\n"),
            answer(status=202),
            result({"tools": []}, 2),
            answer(),
        )
        server = McpServer(label="a", url=host.url("/mcp"), param="", fields=(("X-Key", "k"),))
        session = clients(host).open(server, "")
        await session.tools()
        await session.close()
        first, *others = host.heads
        assert b"POST /mcp " in first
        assert b"X-Key: k" in first
        assert first.count(b"\r\nAccept:") == 1
        assert b"Mcp-Session-Id" not in first
        for head in others:
            assert b"Mcp-Session-Id: s1" in head
            assert b"MCP-Protocol-Version: 2025-03-26" in head
        assert others[-1].startswith(b"DELETE ")


@given(cuts=st.lists(st.integers(1, 9)), ending=st.sampled_from([b"\n", b"\r\n"]))
def test_events_are_the_same_however_they_are_cut(cuts: list[int], ending: bytes) -> None:
    stream = b": hi\n\nid: 1\ndata: {\ndata:}\n\nevent: a\n\ndata: x y\n\ndata: lost".replace(b"\n", ending)
    events, found = EventData(), []
    for size in cuts:
        found += events.push(stream[:size])
        stream = stream[size:]
    assert found + events.push(stream) == [b"{\n}", b"x y"]
