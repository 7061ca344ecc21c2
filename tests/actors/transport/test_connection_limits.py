"""How many connections there may be: idle ones make room, busy ones stay, health is told in any case."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import pytest
import trio
from sensorium.actors.transport.connection_limits import ConnectionLimits, Guard, Seat, connection_limits
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
    async with serving(limits) as server, connected(server.port) as live, connected(server.port) as requests:
        await live.upgrade()
        await requests.send(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
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
        assert (await requests.answer()).body == b"at last"
        assert (await requests.request("GET /echo HTTP/1.1")).status == 200
        assert server.guard.statistics.num_refused == 4


async def test_the_spare_ones_that_wait_longest_make_room() -> None:
    limits = ConnectionLimits(max_connections=1, max_per_address=1, idle_s=30.0)
    async with serving(limits) as server, connected(server.port) as live:
        await live.upgrade()
        streams = [await trio.open_tcp_stream("127.0.0.1", server.port) for _ in range(20)]
        with trio.fail_after(5):
            assert await streams[0].receive_some() == b""
        async with connected(server.port) as requests:
            assert (await requests.request("GET /health HTTP/1.1")).status == 200
        assert server.guard.statistics.num_open <= 18
        for stream in streams:
            await stream.aclose()


class Clock:
    """Stands still until told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def guard_of(num: int, clock: Clock) -> tuple[Guard, list[Seat], list[int]]:
    """A full guard, its seats (each at work on a request), and the numbers of those that had to go."""
    guard = Guard(ConnectionLimits(max_connections=num, max_per_address=num, idle_s=30.0), clock=clock)
    seats, gone = list[Seat](), list[int]()
    for number in range(num):
        seat = guard.admit(f"address {number}")
        assert seat is not None
        seat.hang_up = partial(gone.append, number)
        seat.has_requested = True
        guard.busy(seat)
        seats.append(seat)
    return guard, seats, gone


def has_room(guard: Guard) -> bool:
    """Whether a newcomer gets a place; it leaves at once."""
    seat = guard.admit("newcomer")
    assert seat is not None
    guard.leave(seat)
    return not seat.is_spare


def test_a_head_that_is_not_whole_has_a_moment() -> None:
    clock = Clock()
    guard, seats, gone = guard_of(2, clock)
    guard.wait(seats[1], "head")
    assert not has_room(guard)
    clock.now += 0.26
    assert has_room(guard)
    assert gone == [1]


def test_one_whose_request_has_arrived_is_read_and_not_closed() -> None:
    clock = Clock()
    guard, seats, gone = guard_of(2, clock)
    for seat in seats:
        guard.idle(seat)
    seats[0].has_arrived = lambda: True
    clock.now += 1.0
    assert has_room(guard)
    assert gone == [1]
    guard.begin(seats[0])  # but the rest of its head does not come
    clock.now += 1.0
    held = [guard.admit(f"newcomer {number}") for number in range(2)]
    assert gone == [1, 0]
    assert not any(seat is None or seat.is_spare for seat in held)


def test_who_does_not_read_makes_room_after_a_second() -> None:
    clock = Clock()
    guard, seats, gone = guard_of(2, clock)
    with guard.unread(seats[0]):
        clock.now += 0.9
        assert not has_room(guard)
    with guard.unread(seats[0]):  # it has read meanwhile
        clock.now += 0.9
        assert not has_room(guard)
        clock.now += 0.2
        assert has_room(guard)
    assert gone == [0]
    assert not guard.statistics.num_idle


def test_who_has_shown_no_key_makes_room_first() -> None:
    clock = Clock()
    guard, seats, gone = guard_of(4, clock)
    seats[0].has_key = seats[2].has_key = True
    guard.idle(seats[0])
    with guard.unread(seats[1]):
        clock.now += 2.0
        with guard.unread(seats[2]):
            guard.wait(seats[3], "head")
            clock.now += 2.0
            assert [has_room(guard) for _ in range(5)] == [True] * 5
            assert gone == [1], "there is room by then"
            held = [guard.admit(f"newcomer {number}") for number in range(4)]
            assert gone == [1, 3, 0, 2]
    assert not any(seat is None or seat.is_spare for seat in held)


def test_a_key_that_is_shown_while_one_waits_leaves_nothing_behind() -> None:
    guard, seats, _ = guard_of(1, Clock())
    with guard.unread(seats[0]):
        seats[0].has_key = True
    guard.leave(seats[0])
    assert not list(guard._waiting)
    assert not guard._waiting_of


def test_those_whose_request_is_there_are_answered_beside_all_that_wait() -> None:
    guard, _, _ = guard_of(1, Clock())
    gone: list[int] = []
    for number in range(40):
        seat = guard.admit(f"silent {number}")
        assert seat is not None
        seat.hang_up = partial(gone.append, number)
    assert gone == list(range(24)), "sixteen wait"
    requests = [guard.admit("probe", has_sent=True) for _ in range(30)]
    assert all(requests)
    assert gone == list(range(24)), "and need not go for those"


@pytest.mark.parametrize("attack", ["reads nothing", "half a head", "silent", "half a body"])
async def test_health_is_told_beside_an_attack(attack: str) -> None:
    """All seats are taken from other addresses by clients without a key, again and again."""
    limits = ConnectionLimits(max_connections=24, max_per_address=12, idle_s=30.0)
    large = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n" + bytes(90_000)
    early = b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nhalf"
    sent = {
        "reads nothing": 4 * large,
        "half a head": large[:20],
        "silent": b"",
        "half a body": early,
    }[attack]

    async def attacker(number: int) -> None:
        while True:
            with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(1.5):
                stream = await trio.open_tcp_stream(
                    "127.0.0.1", server.port, local_address=f"127.0.0.{10 + number % 5}"
                )
                async with stream:
                    await stream.send_all(sent)
                    await trio.sleep_forever()

    async with serving(limits) as server, trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(attacker, number)
        with trio.fail_after(30):
            while server.guard.statistics.num_refused < 2:  # noqa: ASYNC110 (of a task that knows no event)
                await trio.sleep(0.01)
        for _ in range(10):
            assert await trio.to_thread.run_sync(health, server.port) < 10
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


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
        assert not {**guard._num_of, **guard._waiting_of}, "nothing is remembered of who is not there"


def test_limits_leave_descriptors_for_others() -> None:
    found = connection_limits(0, 0, idle_s=1.0)
    assert 8 <= found.max_connections <= 4096
    assert found.max_per_address == found.max_connections // 2
    assert connection_limits(10, 0, idle_s=1.0) == ConnectionLimits(10, 5, 1.0)
    assert connection_limits(10, 99, idle_s=1.0) == ConnectionLimits(10, 10, 1.0)


SCRIPT = """
import resource, trio
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from sensorium.actors.transport.connection_limits import Guard, connection_limits
from sensorium.actors.transport.listener import open_listener, serve_connections
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
    with socket.create_connection(("127.0.0.1", port), timeout=60) as requests:
        requests.sendall(HEALTH)
        assert requests.recv(100).startswith(b"HTTP/1.1 200")
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


def test_spare_ones_make_room_by_address_so_that_a_probe_stays() -> None:
    """A probe's request arrives a moment after its connection: a flood does not push it out meanwhile."""
    clock = Clock()
    guard, _, _ = guard_of(1, clock)
    probe = guard.admit("balancer")
    assert probe is not None
    assert probe.is_spare
    gone: list[str] = []
    probe.hang_up = lambda: gone.append("balancer")
    for number in range(200):
        clock.now += 0.001
        flood = guard.admit(f"flood {number % 3}")
        assert flood is not None
        flood.hang_up = partial(gone.append, flood.address)
    assert "balancer" not in gone
    assert len(gone) >= 180
