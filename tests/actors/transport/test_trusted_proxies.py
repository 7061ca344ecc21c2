"""Whose word counts on where a request comes from, over real sockets."""

from __future__ import annotations

import hashlib
import ipaddress
import time

import pytest
from sensorium.actors.callers import Caller
from sensorium.actors.transport.connection_limits import ConnectionLimits
from sensorium.actors.transport.trusted_proxies import CALLER, TrustedProxies
from sensorium.protocols.server.signed_caller import SignedCaller, sign
from support.wire import Answer, Served, connected, serving

pytestmark = pytest.mark.slow

SECRET = "sixteen letters."
LOCAL = TrustedProxies([ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("10.0.0.0/8")], SECRET)
ELSEWHERE = TrustedProxies([ipaddress.ip_network("10.0.0.0/8")], SECRET)
V2 = b"\r\n\r\n\0\r\nQUIT\n"
V2_OF_CLIENT = V2 + b"\x21\x11\0\x0c" + bytes([192, 0, 2, 7, 10, 0, 0, 1]) + b"\x04\xd2\0\x50"


async def ask(server: Served, *fields: str, before: bytes = b"", path: str = "/health") -> Answer:
    async with connected(server.port) as peer:
        await peer.send(before)
        return await peer.request("\r\n".join((f"GET {path} HTTP/1.1", *fields)))


async def client_of(server: Served, *fields: str, before: bytes = b"") -> str:
    assert (await ask(server, *fields, before=before)).status == 200
    found: str = server.app.scopes[-1]["client"][0]
    return found


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (["192.0.2.7"], "192.0.2.7"),
        (["203.0.113.1, 192.0.2.7"], "192.0.2.7"),
        (["203.0.113.1", "192.0.2.7, 10.1.2.3"], "192.0.2.7"),
        (["192.0.2.7:4711"], "192.0.2.7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["2001:db8::7"], "2001:db8::7"),
        (["::ffff:192.0.2.7"], "192.0.2.7"),
        (["192.0.2.7, unknown"], "127.0.0.1"),
        (["10.1.2.3"], "127.0.0.1"),
        ([""], "127.0.0.1"),
        (["192.0.2.7, 999.0.0.1"], "127.0.0.1"),
    ],
)
async def test_the_last_address_that_is_no_proxys_counts(forwarded: list[str], expected: str) -> None:
    async with serving(proxies=LOCAL) as server:
        assert await client_of(server, *(f"X-Forwarded-For: {each}" for each in forwarded)) == expected


async def test_nobody_else_is_believed() -> None:
    for proxies in (ELSEWHERE, None):
        async with serving(proxies=proxies) as server:
            signed = sign(
                SignedCaller("192.0.2.7"),
                SECRET.encode(),
                now_s=time.time(),
                method=b"GET",
                target=b"/health",
            )
            fields = ("X-Forwarded-For: 192.0.2.7", f"Sensorium-Caller: {signed.decode()}")
            assert await client_of(server, *fields) == "127.0.0.1"
            assert CALLER not in server.app.scopes[-1]
            assert (await ask(server, before=V2_OF_CLIENT)).status == 400


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 1234 80\r\n",
        V2_OF_CLIENT,
        V2 + b"\x21\x11\0\x0f" + V2_OF_CLIENT[16:] + b"\x04\0\0",
    ],
)
async def test_a_connection_may_begin_with_whom_it_is_for(header: bytes) -> None:
    async with serving(proxies=LOCAL) as server:
        assert await client_of(server, before=header) == "192.0.2.7"
        assert await client_of(server, "X-Forwarded-For: 192.0.2.8", before=header) == "192.0.2.8"
        async with connected(server.port) as peer:  # a byte at a time, and for all requests of the connection
            for byte in header:
                await peer.send(bytes([byte]))
            for _ in range(2):
                assert (await peer.request("GET /health HTTP/1.1")).status == 200
                assert server.app.scopes[-1]["client"][0] == "192.0.2.7"


@pytest.mark.parametrize("header", [b"PROXY UNKNOWN\r\n", V2 + b"\x20\0\0\0", V2 + b"\x21\x31\0\x02xx", b""])
async def test_it_may_name_nobody(header: bytes) -> None:
    async with serving(proxies=LOCAL) as server:
        assert await client_of(server, before=header) == "127.0.0.1"


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP4 999.0.0.1 10.0.0.1 1 2\r\n",
        b"PROXY TCP4 " + b"1" * 200,
        V2 + b"\x11\x11\0\x0c" + bytes(12),
        V2 + b"\x21\x11\0\x04" + bytes(4),
        V2 + b"\x21\x11\xff\xff",
    ],
)
async def test_a_malformed_one_is_refused(header: bytes) -> None:
    async with serving(proxies=LOCAL) as server:
        assert (await ask(server, before=header)).status == 400
        assert not server.app.scopes


async def test_a_gateway_signs_for_its_callers() -> None:
    digest = hashlib.sha256(b"sk-1").hexdigest()

    def field(caller: SignedCaller, secret: str = SECRET, now_s: float | None = None) -> str:
        at_s = time.time() if now_s is None else now_s
        value = sign(caller, secret.encode(), now_s=at_s, method=b"GET", target=b"/health")
        return f"Sensorium-Caller: {value.decode()}"

    async with serving(proxies=LOCAL) as server:
        assert await client_of(server, field(SignedCaller("192.0.2.7", digest))) == "192.0.2.7"
        assert server.app.scopes[-1][CALLER] == Caller(digest, has_key=True)
        assert await client_of(server, field(SignedCaller("2001:db8::7"))) == "2001:db8::7"
        assert CALLER not in server.app.scopes[-1]
        num_served = len(server.app.scopes)
        right = field(SignedCaller("192.0.2.7"))
        for wrong in (
            [field(SignedCaller("192.0.2.7"), "another's secret")],
            [field(SignedCaller("192.0.2.7"), now_s=time.time() - 3600)],
            [right, right],
            ["Sensorium-Caller: 192.0.2.7"],
        ):
            refused = await ask(server, *wrong)
            assert (refused.status, b"invalid_caller" in refused.body) == (400, True)
        assert (await ask(server, right, path="/other")).status == 400
        assert len(server.app.scopes) == num_served


async def test_a_proxys_connections_are_not_those_of_one_address() -> None:
    limits = ConnectionLimits(max_connections=8, max_per_address=1, idle_s=30.0)
    async with (
        serving(limits, proxies=LOCAL) as server,
        connected(server.port) as one,
        connected(server.port) as other,
    ):
        for _ in range(2):
            for peer in (one, other):
                assert (await peer.request("GET /health HTTP/1.1")).status == 200
        assert server.guard.statistics.num_refused == server.guard.statistics.num_evicted == 0
