"""What never becomes a request: counted exactly, told at a bounded rate, and answered with an id."""

from __future__ import annotations

import pytest
import trio
from sensorium.actors.transport import http11, refusals
from sensorium.actors.transport.connection_limits import ConnectionLimits
from sensorium.actors.transport.refusals import Refusal, Refusals
from support.wire import HANDSHAKE, connected, serving
from trio.testing import MockClock

SENT = {
    "no HTTP": (b"\x16\x03\x01\r\n\r\n", Refusal(400, "invalid_value", "", ("", 0))),
    "a long head": (
        b"GET / HTTP/1.1\r\nhost: x\r\na: " + bytes(40_000).replace(b"\0", b"a"),
        Refusal(431, "invalid_value", "", ("", 0)),
    ),
    "a slow head": (b"GET / HT", Refusal(408, "request_timeout", "", ("", 0))),
    "HTTP/2": (
        b"PRI * HTTP/2.0\r\nhost: x\r\n\r\n",
        Refusal(505, "http_version_not_supported", "", ("", 0), "PRI", "*"),
    ),
    "a wrong WebSocket": (
        HANDSHAKE.replace(b"GET / ", b"GET /%41?b ").replace(b"Version: 13", b"Version: 12") + b"\r\n",
        Refusal(426, "upgrade_required", "", ("", 0), "GET", "/A"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SENT)
async def test_what_is_no_request_is_counted_and_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http11, "_HEAD_S", 0.2)
    data, expected = SENT[name]
    async with serving() as server:
        for _ in range(2):
            async with connected(server.port) as peer:
                port = peer.stream.socket.getsockname()[1]
                await peer.send(data)
                found = await peer.answer()
                assert found.status == expected.status
            reported, num_unreported = server.reported[-1]
            assert num_unreported == 0
            assert found.headers["x-request-id"] == found.headers["request-id"] == reported.request_id
            assert reported.client == ("127.0.0.1", port)
            assert (reported.status, reported.code, reported.method, reported.path) == (
                expected.status,
                expected.code,
                expected.method,
                expected.path,
            )
        assert server.refusals.num_by_status == {expected.status: 2}
        assert server.app.scopes == []


@pytest.mark.slow
async def test_who_finds_no_room_is_told_with_its_own_id() -> None:
    limits = ConnectionLimits(max_connections=1, max_per_address=1, idle_s=30.0)
    async with serving(limits) as server, connected(server.port) as busy:
        await busy.send(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        await server.app.waiting.wait()
        async with connected(server.port) as spare:
            found = await spare.request("GET /a HTTP/1.1\r\nx-request-id: mine")
            assert (found.status, found.headers["x-request-id"]) == (503, "mine")
        async with connected(server.port) as spare:
            assert (await spare.request("GET /health HTTP/1.1")).status == 200
        server.app.go_on.set()
        await busy.answer()
    assert [(reported.code, reported.request_id, reported.path) for reported, _ in server.reported] == [
        ("too_many_connections", "mine", "/a")
    ]
    assert server.refusals.num_by_status == {503: 1}


async def test_a_flood_costs_few_lines_and_every_one_is_counted(autojump_clock: MockClock) -> None:
    reported: list[int] = []
    noted = Refusals(lambda _, num_unreported: reported.append(num_unreported))
    one = Refusal(400, "invalid_value", "req_1", ("10.0.0.7", 1))
    for _ in range(100_000):
        noted.note(one)
    assert reported == [0] * refusals._LOG_BURST
    await trio.sleep(10)
    for _ in range(1000):
        noted.note(one)
    num_left_out = 100_000 - refusals._LOG_BURST
    assert reported[refusals._LOG_BURST :] == [num_left_out, *[0] * 9]
    await trio.sleep(3600)
    noted.note(one)
    assert reported[-1] == 990
    assert noted.num_by_status == {400: 101_001}
