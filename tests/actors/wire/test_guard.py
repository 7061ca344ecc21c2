"""How many connections there may be: idle ones make room, busy ones stay, health is told in any case."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import trio
from sensorium.actors.wire.guard import ConnectionLimits, Guard, connection_limits
from support.wire import HANDSHAKE, connected, frame, serving

pytestmark = pytest.mark.slow

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_the_connection_idle_longest_makes_room() -> None:
    limits = ConnectionLimits(max_connections=3, max_per_address=3, idle_s=30.0)
    async with serving(limits) as server, connected(server.port) as first, connected(server.port) as second:
        assert (await first.request("GET /health HTTP/1.1")).status == 200
        assert (await second.request("GET /health HTTP/1.1")).status == 200
        assert (await first.request("GET /health HTTP/1.1")).status == 200
        async with connected(server.port) as third, connected(server.port) as fourth:
            assert (await fourth.request("GET /health HTTP/1.1")).status == 200
            assert await second.is_closed()
            assert (await first.request("GET /health HTTP/1.1")).status == 200
            assert (await third.request("GET /health HTTP/1.1")).status == 200
        assert server.guard.statistics.num_evicted == 1


@pytest.mark.parametrize("by_address", [False, True])
async def test_where_all_are_busy_only_health_is_told(by_address: bool) -> None:
    limits = ConnectionLimits(max_connections=8 if by_address else 2, max_per_address=2, idle_s=30.0)
    async with serving(limits) as server, connected(server.port) as live, connected(server.port) as asking:
        await live.upgrade()
        await asking.send(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        await server.app.waiting.wait()
        for path, status in (("/health", 200), ("/echo", 503), ("/health", 200)):
            async with connected(server.port) as spare:
                found = await spare.request(f"GET {path} HTTP/1.1")
                assert (found.status, found.headers["connection"]) == (status, "close")
                assert await spare.is_closed()
        async with connected(server.port) as more:
            await more.send(b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\n\r\n")
            assert (await more.answer()).status == 503
        server.app.go_on.set()
        assert (await asking.answer()).body == b"at last"
        assert (await asking.request("GET /echo HTTP/1.1")).status == 200
        assert server.guard.statistics.num_refused == 4


async def test_what_comes_after_the_spare_ones_is_closed_at_once() -> None:
    limits = ConnectionLimits(max_connections=1, max_per_address=1, idle_s=30.0)
    async with serving(limits) as server, connected(server.port) as live:
        await live.upgrade()
        streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(20)]
        with trio.fail_after(5):
            assert await streams[-1].receive_some() == b""
        assert server.guard.statistics.num_open == 17
        for stream in streams:
            await stream.aclose()


def test_who_leaves_gives_back_the_place_that_it_had() -> None:
    guard = Guard(ConnectionLimits(max_connections=3, max_per_address=2, idle_s=30.0))
    for _ in range(3):
        seats = [guard.admit(address) for address in ("one", "one", "one", "other", "other")]
        assert [seat.is_spare for seat in seats if seat] == [False, False, True, False, True]
        for seat in reversed(seats):
            assert seat is not None
            guard.idle(seat)
            guard.leave(seat)
            guard.leave(seat)  # as one that has made room does
            if seat.is_spare:
                another = guard.admit(seat.address)
                assert another is not None
                assert another.is_spare, "no other has been left"
                guard.leave(another)
        assert guard.statistics.num_open == guard.statistics.num_idle == 0
        assert not {**guard._num_of, **guard._idle_of}, "nothing is remembered of who is not there"


def test_limits_leave_descriptors_for_others() -> None:
    found = connection_limits(0, 0, idle_s=1.0)
    assert 8 <= found.max_connections <= 4096
    assert found.max_per_address == found.max_connections // 2
    assert connection_limits(10, 0, idle_s=1.0) == ConnectionLimits(10, 5, 1.0)
    assert connection_limits(10, 99, idle_s=1.0) == ConnectionLimits(10, 10, 1.0)


SCRIPT = """
import resource, trio
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from sensorium.actors.wire.guard import Guard, connection_limits
from sensorium.actors.wire.listening import open_listener, serve_connections
from support.wire import Echo

listener = open_listener("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
guard = Guard(connection_limits(0, 1000, idle_s=30.0))
trio.run(lambda: serve_connections(Echo(), listener, guard=guard, max_message_bytes=1000, send_timeout_s=5.0,
    stop=trio.Event(), grace_s=1.0))
"""


@contextmanager
def few_descriptors() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port of a server in a process that may hold 100 descriptors, with 66 connections at most."""
    paths = ":".join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": paths},
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


def health(port: int) -> float:
    """Seconds that it took to be told the server's health."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as asking:
        asking.sendall(HEALTH)
        assert asking.recv(100).startswith(b"HTTP/1.1 200")
    return time.monotonic() - began


def test_more_idle_connections_than_descriptors() -> None:
    with few_descriptors() as (port, process), ExitStack() as held:
        live = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        live.sendall(HANDSHAKE + b"\r\n")
        assert live.recv(1000).startswith(b"HTTP/1.1 101")
        for number in range(1100):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            if number % 100 == 99:
                assert health(port) < 2
                live.sendall(frame(1, b"hi"))
                assert live.recv(100) == frame(1, b"hi", masked=False)
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_thousands_that_connect_and_leave() -> None:
    with few_descriptors() as (port, process):
        for number in range(3000):
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
            if number % 500 == 0:
                assert health(port) < 2
        assert health(port) < 2
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""
