"""What a client may try against a gateway: nothing of it reaches another place, or as another request."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import httpx
import msgspec
import pytest
import trio
from sensorium.actors.config.network import ListenConfig
from sensorium.actors.transport.trusted_proxies import CALLER, TrustedProxies
from support.gateways import CONFIG, WAIT_S, Stub, gateway
from support.wire import Answer, Peer

pytestmark = pytest.mark.slow

SECRET = "sixteen letters."
BODY = b'{"model":"m"}'


async def exchange(port: int, *lines: str, body: bytes = b"", host: str = "localhost") -> Answer:
    """One request, byte for byte, and its answer; the connection of one that is refused may be reset."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        peer = Peer(stream)
        await peer.send("\r\n".join((lines[0], f"Host: {host}", *lines[1:], "", "")).encode("latin-1") + body)
        return await peer.answer()


def echoed(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found


@pytest.mark.parametrize(
    ("lines", "body", "status"),
    [
        (["POST /v1/x HTTP/1.1", "Content-Length: 13", "Transfer-Encoding: chunked"], BODY, 400),
        (["POST /v1/x HTTP/1.1", "Content-Length: 13", "Content-Length: 14"], BODY, 400),
        (["POST /v1/x HTTP/1.1", "Content-Length: +13"], BODY, 400),
        (["POST /v1/x HTTP/1.1", "Transfer-Encoding: gzip, chunked"], BODY, 501),
        (["POST /v1/x HTTP/1.1", "Transfer-Encoding: xchunked"], BODY, 501),
        (["POST /v1/x HTTP/1.1", "Content-Length : 13"], BODY, 400),
        (["GET /v1/x HTTP/1.1", "Host: other"], b"", 400),
        (["GET /v1/x HTTP/2.0"], b"", 505),
        (["GET /v1/x HTTP/1.1", f"X: {'a' * 100_000}"], b"", 431),
        (["GET /v1/x HTTP/1.1", *(f"X{i}: a" for i in range(300))], b"", 431),
        (["POST /v1/x HTTP/1.1", "Content-Length: 99999999999999"], b"", 413),
        (["POST /v1/x HTTP/1.1", "Content-Encoding: gzip", "Content-Length: 13"], BODY, 400),
        (["CONNECT example.org:443 HTTP/1.1"], b"", 404),
        (["OPTIONS * HTTP/1.1"], b"", 404),
        (["GET /metrics/ HTTP/1.1"], b"", 404),
        (["GET /console HTTP/1.1"], b"", 404),
        (["GET /v1/../metrics HTTP/1.1"], b"", 400),
        (["GET /v1/%2e%2e/metrics HTTP/1.1"], b"", 400),
        (["GET /v1/..%2fmetrics HTTP/1.1"], b"", 400),
        (["GET /v1/%252e%252e/metrics HTTP/1.1"], b"", 400),
        (["GET /v1/..%5cmetrics HTTP/1.1"], b"", 400),
        (["GET //example.org/v1/x HTTP/1.1"], b"", 400),
        (["GET /v1/x%0d%0aX-Evil:%201 HTTP/1.1"], b"", 400),
        (["GET /v1/x%00 HTTP/1.1"], b"", 400),
        (["POST /v1/models HTTP/1.1", "Content-Length: 0"], b"", 405),
        (["GET /v1/x HTTP/1.1", "Origin: https://evil.example"], b"", 403),
    ],
)
async def test_what_is_no_plain_request_reaches_no_server(lines: list[str], body: bytes, status: int) -> None:
    one = Stub("one")
    async with gateway(one) as front:
        assert (await exchange(front.port, *lines, body=body)).status == status
        assert not one.scopes


async def test_another_host_is_not_gone_to() -> None:
    """Servers are the operator's: neither an absolute address nor a `Host` leads elsewhere."""
    one, other = Stub("one"), Stub("other")
    async with gateway(one) as front, gateway(other):
        absolute = await exchange(
            front.port, f"GET {other.url}/v1/x HTTP/1.1", host=f"127.0.0.1:{other.port}"
        )
        found = echoed(absolute)
        assert (found["server"], found["target"]) == ("one", "/v1/x?")
        named = await exchange(
            front.port, "GET /v1/x?to=http://127.0.0.1 HTTP/1.1", host=f"127.0.0.1:{other.port}"
        )
        headers = dict(echoed(named)["headers"])
        assert headers["host"] == f"127.0.0.1:{one.port}"
        assert (await exchange(front.port, "GET /v1/x HTTP/1.1", host="evil.example")).status == 403
        assert not other.scopes


async def test_fields_of_one_connection_stay_on_it() -> None:
    one = Stub("one")
    async with gateway(one) as front:
        sent = await exchange(
            front.port,
            "GET /v1/x HTTP/1.1",
            "Connection: keep-alive, X-Mine, Authorization, Content-Type, Host",
            "Keep-Alive: 5",
            "X-Mine: 1",
            "TE: trailers",
            "Upgrade: h2c",
            "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
            "Proxy-Authorization: Basic x",
            "X-Forwarded-For: 198.51.100.1",
            "X-Forwarded-Host: evil.example",
            "Forwarded: for=198.51.100.1",
            "X-Real-Ip: 198.51.100.1",
            "Sensorium-Caller: v1 t=1 a=198.51.100.1 k=- s=0",
            "Cookie: a=b",
            "Authorization: Bearer sk-1",
            "Expect: 100-continue",
            "X-Other: 2",
        )
        headers = dict(echoed(sent)["headers"])
        request_id = headers.pop("x-request-id")
        assert request_id == sent.headers["x-request-id"]
        assert headers == {
            "host": f"127.0.0.1:{one.port}",
            "authorization": "Bearer sk-1",
            "x-other": "2",
            "accept-encoding": "identity",
            "x-forwarded-for": "127.0.0.1",
        }


async def test_requests_sent_ahead_are_each_relayed() -> None:
    one = Stub("one")
    async with gateway(one) as front, await trio.open_tcp_stream("127.0.0.1", front.port) as stream:
        peer = Peer(stream)
        head = b"POST /v1/x%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n"
        await peer.send(b"".join(head % number + BODY for number in range(5)))
        targets = [echoed(await peer.answer())["target"] for _ in range(5)]
        assert targets == [f"/v1/x{number}?" for number in range(5)]


async def test_a_servers_answer_cannot_become_two() -> None:
    """A server that is no HTTP, or claims more than there is, ends its own answer."""

    async def serve(stream: trio.SocketStream) -> None:
        request = await stream.receive_some(100_000)
        asked = re.search(rb"number=(\d)", request)
        answer = b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: close\r\n\r\n{"data":[]}'
        with suppress(trio.BrokenResourceError):  # a long answer that is not read, a probe given up
            await stream.send_all(answer if asked is None else answers[int(asked[1])])

    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\r\n b\r\n\r\n{}",
        b"not HTTP\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
    ]
    wanted = [200, 200, 503, 503, 200, 503]
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    stub = Stub("raw", port=listeners[0].socket.getsockname()[1])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        async with (
            gateway(config=replace(CONFIG, servers=(stub.url,), health_interval_s=3600.0)) as front,
            httpx.AsyncClient(base_url=front.url) as client,
        ):
            for number, status in enumerate(wanted):
                front.server(stub).health.succeeded()
                found = await client.post(f"/v1/responses?number={number}", json={"input": "x"})
                assert (found.status_code, b"second" in found.content) == (status, False)
        nursery.cancel_scope.cancel()


async def test_a_gateway_checks_keys_and_shows_its_own() -> None:
    one = Stub("one", proxies=TrustedProxies([ip_network("127.0.0.0/8")], SECRET))
    listen = ListenConfig(api_key=("sk-a", "sk-b"), caller_secret=SECRET)
    config = replace(CONFIG, server_api_key="sk-server")
    async with (
        gateway(one, config=config, listen=listen) as front,
        httpx.AsyncClient(base_url=front.url) as client,
    ):
        for wrong in ({}, {"authorization": "Bearer sk-c"}, {"x-api-key": "ek_unknown12"}):
            assert (await client.get("/v1/x", headers=wrong)).status_code == 401
        for path in ("/metrics", "/v1/models"):
            assert (await client.get(path)).status_code == 401
        assert (await client.get("/health")).status_code == 200
        assert not one.scopes
        for key in ("sk-a", "sk-b"):
            found = (await client.get("/v1/x", headers={"api-key": key})).json()
            assert [value for name, value in found["headers"] if name in ("authorization", "api-key")] == [
                "Bearer sk-server"
            ]
        callers = [scope[CALLER] for scope in one.scopes]
        assert [each.has_key for each in callers] == [True, True]
        assert callers[0] != callers[1]


async def test_clients_behind_two_proxies_are_told_apart() -> None:
    """A proxy in front of the gateway names the client, and the gateway names it to the server."""
    networks = [ip_network("127.0.0.0/8")]
    one = Stub("one", proxies=TrustedProxies(networks, SECRET))
    listen = ListenConfig(trusted_proxies=("127.0.0.1",), caller_secret=SECRET)
    async with gateway(one, listen=listen) as front, httpx.AsyncClient(base_url=front.url) as client:
        for address in ("192.0.2.1", "192.0.2.2"):
            for target in ("/v1/x", "/v1/x?a=%20b&c"):
                assert (await client.get(target, headers={"x-forwarded-for": address})).status_code == 200
                assert one.scopes[-1]["client"][0] == address
    two = Stub("two", proxies=TrustedProxies(networks, "another's secret."))
    async with gateway(two, listen=listen) as front, httpx.AsyncClient(base_url=front.url) as client:
        found = await client.get("/v1/x")
        assert (found.status_code, found.json()["error"]["code"]) == (400, "invalid_caller")


async def test_pages_of_other_origins_are_answered_as_a_server_does() -> None:
    one = Stub("one")
    listen = ListenConfig(allowed_origins=("https://app.example",))
    async with gateway(one, listen=listen) as front, httpx.AsyncClient(base_url=front.url) as client:
        headers = {"origin": "https://app.example", "access-control-request-method": "POST"}
        asked = await client.options("/v1/chat/completions", headers=headers)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (
            204,
            "https://app.example",
        )
        found = await client.get("/v1/x", headers={"origin": "https://app.example"})
        assert found.headers.get_list("access-control-allow-origin") == ["https://app.example"]
        assert "origin" not in dict(found.json()["headers"])


async def test_a_crowd_of_idle_connections_keeps_no_probe_out() -> None:
    listen = ListenConfig(max_connections=20)
    async with gateway(Stub("one"), listen=listen) as front:
        idle = [await trio.open_tcp_stream("127.0.0.1", front.port) for _ in range(60)]
        async with httpx.AsyncClient(base_url=front.url) as client:
            with trio.fail_after(WAIT_S):
                assert (await client.get("/health")).status_code == 200
        for stream in idle:
            await trio.aclose_forcefully(stream)
