"""HTTP/1.1 over real sockets: what is answered, and what becomes of the connection then."""

from __future__ import annotations

import pytest
import trio
from sensorium.actors.transport import http11
from sensorium.actors.transport import http_exchange as exchange
from sensorium.actors.transport.connection_limits import ConnectionLimits
from sensorium.actors.transport.rate_limit import Allowance
from support.wire import Peer, Served, connected, serving

pytestmark = pytest.mark.slow


async def test_one_connection_takes_many_requests() -> None:
    async with serving() as server, connected(server.port) as peer:
        for size in (0, 3, 200_000):
            found = await peer.request("POST /echo HTTP/1.1", bytes(size))
            assert (found.status, found.body) == (200, bytes(size))
        head = await peer.request("HEAD /health HTTP/1.1")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "2")
        streamed = await peer.request("GET /stream HTTP/1.1")
        assert (streamed.body, streamed.headers["transfer-encoding"]) == (b"one two", "chunked")
        await peer.send(b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.send(b"3\r\nabc\r\n1\r\nd\r\n0\r\nx-more: 1\r\n\r\n")
        assert (await peer.answer()).body == b"abcd"
        assert server.guard.statistics.num_accepted == 1


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.send(
            b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n".join([b"", b"1", b"2"])
        )
        await peer.send(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n" * 100)
        assert [(await peer.answer()).body for _ in range(2)] == [b"1", b"2"]
        assert {(await peer.answer()).body for _ in range(100)} == {b"one two"}


async def test_a_client_may_ask_before_it_sends_its_body() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.send(
            b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n"
        )
        with trio.fail_after(5):
            assert await peer.stream.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await peer.send(b"abc")
        assert (await peer.answer()).body == b"abc"
        refused = await peer.request("POST /early HTTP/1.1\r\nexpect: 100-continue", length=10_000)
        assert (refused.status, refused.interim, refused.headers["connection"]) == (401, [], "close")
        assert await peer.is_closed()


async def test_an_absolute_uri_names_host_and_path() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.request("GET http://example.org:81/a%20b?c=d HTTP/1.1")
        await peer.request("GET http://example.org?c HTTP/1.1")
        await peer.request("GET http://example.org?c=a/b&d HTTP/1.1")
        one, other, third = server.app.scopes
        assert (one["path"], one["raw_path"], one["query_string"]) == ("/a b", b"/a%20b", b"c=d")
        assert [value for name, value in one["headers"] if name == b"host"] == [b"example.org:81"]
        assert (other["path"], other["query_string"]) == ("/", b"c")
        assert (third["path"], third["query_string"]) == ("/", b"c=a/b&d")
        assert [value for name, value in third["headers"] if name == b"host"] == [b"example.org"]


async def test_http_1_0_is_answered_once() -> None:
    async with serving() as server, connected(server.port) as peer:
        assert (await peer.request("POST /echo HTTP/1.0", b"abc")).body == b"abc"
        assert await peer.is_closed()


@pytest.mark.parametrize("path", ["/early", "/fail"])
async def test_an_early_answer_leaves_the_connection_as_it_was(path: str) -> None:
    async with serving() as server, connected(server.port) as peer:
        for size in (1, 10_000, 1_000_000):
            refused = await peer.request(f"POST {path} HTTP/1.1", bytes(size))
            assert refused.status == (401 if path == "/early" else 500)
            assert "connection" not in refused.headers
        assert (await peer.request("POST /echo HTTP/1.1", b"abc")).body == b"abc"
        assert server.guard.statistics.num_accepted == 1


@pytest.mark.parametrize("kind", ["long", "chunked"])
async def test_an_early_answer_to_a_long_body_is_read_and_ends_the_connection(kind: str) -> None:
    """The client reads nothing before it has sent everything."""
    async with serving() as server, connected(server.port) as peer:
        body, more = bytes(20_000_000), "content-length: 20000000"
        if kind == "chunked":
            body, more = (
                (b"10000\r\n" + bytes(65536) + b"\r\n") * 300 + b"0\r\n\r\n",
                "transfer-encoding: chunked",
            )
        with trio.fail_after(20):
            await peer.send(f"POST /early HTTP/1.1\r\nhost: x\r\n{more}\r\n\r\n".encode() + body)
        refused = await peer.answer()
        assert (refused.status, refused.headers["connection"]) == (401, "close")
        assert await peer.is_closed()


@pytest.mark.parametrize("num_sent", [0, 10, 4_000_000])
async def test_a_body_that_stops_after_an_early_answer_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, num_sent: int
) -> None:
    monkeypatch.setattr(http11, "_SILENCE_S", 0.2)
    monkeypatch.setattr(exchange, "_DRAIN_S", 0.2)
    for length in (1_000_000, 20_000_000):
        async with serving() as server, connected(server.port) as peer:
            sent = min(num_sent, length - 1)
            refused = await peer.request("POST /early HTTP/1.1", bytes(sent), length=length)
            assert refused.status == 401
            assert await peer.is_closed()


async def test_a_client_that_says_nothing_more_is_answered() -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.send(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        await server.app.waiting.wait()
        await peer.stream.send_eof()
        with trio.fail_after(5):  # asked whether anybody is there
            assert await peer.stream.receive_some() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await trio.sleep(0.1)
        assert not server.app.left.is_set()
        server.app.go_on.set()
        found = await peer.answer()
        assert (found.status, found.body) == (200, b"at last")
        assert await peer.is_closed()


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("sent_ahead", [b"", b"GET / HTTP/1.1\r\n"])
async def test_work_for_a_client_that_left_ends(version: str, sent_ahead: bytes) -> None:
    async with serving() as server:
        async with connected(server.port) as peer:
            await peer.send(f"GET /wait HTTP/{version}\r\nhost: x\r\n\r\n".encode() + sent_ahead)
            await server.app.waiting.wait()
        if version == "1.0":  # it cannot be asked, so it is answered
            server.app.go_on.set()
            return
        with trio.fail_after(1):
            await server.app.left.wait()


BAD_REQUESTS = {
    b"hello\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n": 501,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n": 400,
    b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 100_000 + b"\r\n\r\n": 431,
    b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n": 431,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": 505,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n": 400,
}


@pytest.mark.parametrize("data", BAD_REQUESTS, ids=lambda data: repr(data[:40]))
async def test_what_is_not_http_is_told_so(data: bytes) -> None:
    async with serving() as server, connected(server.port) as peer:
        await peer.send(data)
        found = await peer.answer()
        assert found.status == BAD_REQUESTS[data], found.body
        assert found.body.startswith(b'{"error":{"message":')
        assert found.headers["connection"] == "close"
        assert await peer.is_closed()


async def test_both_lengths_are_no_way_to_smuggle() -> None:
    """A proxy that goes by the length has sent one request, and must not get the answers to two."""
    smuggled = b"0\r\n\r\nGET /health HTTP/1.1\r\nhost: a\r\n\r\n"
    async with serving() as server, connected(server.port) as peer:
        await peer.send(
            b"POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\ntransfer-encoding: chunked\r\n\r\n"
            % len(smuggled)
            + smuggled
        )
        found = await peer.answer()
        assert (found.status, found.headers["connection"]) == (400, "close")
        assert await peer.is_closed()
        assert not server.app.scopes


async def test_heads_have_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http11, "_HEAD_S", 0.2)
    async with serving() as server, connected(server.port) as slow:
        await slow.send(b"GET / HTTP/1.1\r\nhost")
        assert (await slow.answer()).status == 408
        assert await slow.is_closed()


async def test_connections_that_ask_nothing_have_a_time_limit() -> None:
    limits = ConnectionLimits(max_connections=8, max_per_address=8, idle_s=3.0)
    async with serving(limits) as server, connected(server.port) as kept, connected(server.port) as silent:
        assert (await kept.request("GET /health HTTP/1.1")).status == 200
        assert await kept.is_closed()
        assert await silent.is_closed()


async def test_an_answer_that_breaks_off_does_not_look_whole(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server, connected(server.port) as peer:
        with pytest.raises(trio.BrokenResourceError):
            await peer.request("GET /half HTTP/1.1")
    assert "a defect midway" in caplog.text


async def test_the_end_answers_what_is_asked_already() -> None:
    async def ask(peer: Peer) -> None:
        found = await peer.request("GET /wait HTTP/1.1")
        assert found.body == b"at last"
        assert await peer.is_closed()

    async with trio.open_nursery() as nursery, serving() as server:
        peers = [Peer(await trio.open_tcp_stream("127.0.0.1", server.port)) for _ in range(2)]
        nursery.start_soon(ask, peers[0])
        await server.app.waiting.wait()
        server.guard.close()
        assert await peers[1].is_closed()
        server.app.go_on.set()
        await trio.testing.wait_all_tasks_blocked()
    for peer in peers:
        await peer.stream.aclose()


async def post_large(server: Served, num_bytes: int) -> None:
    """Send a body and read its echo."""
    async with connected(server.port) as peer:
        assert (await peer.request("POST /echo HTTP/1.1", bytes(num_bytes))).body == bytes(num_bytes)


async def test_large_bodies_share_a_rate() -> None:
    mebibyte, per_s = 1024 * 1024, 4 * 1024 * 1024
    async with serving() as server:
        server.guard.large_bodies = Allowance(burst=mebibyte, per_s=per_s)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(post_large, server, 3 * mebibyte)
        # Of each body all but the first mebibyte counts, and all but the burst and the last parts is earned.
        owed_bytes = 2 * 2 * mebibyte - mebibyte - 128 * 1024
        assert trio.current_time() - began >= owed_bytes / per_s


async def test_small_bodies_do_not_wait_for_large_ones() -> None:
    async with serving() as server, trio.open_nursery() as nursery:
        server.guard.large_bodies = Allowance(burst=1, per_s=1)  # the large one is days on its way
        nursery.start_soon(post_large, server, 3 * 1024 * 1024)
        async with connected(server.port) as peer:
            for _ in range(5):
                found = await peer.request("POST /echo HTTP/1.1", bytes(512 * 1024))
                assert len(found.body) == 512 * 1024
        nursery.cancel_scope.cancel()
