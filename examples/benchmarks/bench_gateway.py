"""What `sensorium gateway` adds to a request, to an event of a stream and to a WebSocket message.

    python examples/benchmarks/bench_gateway.py [--seconds 20] [--rate 100]

A server that answers at once, the gateway and the client are a process each. `--rate` times a second the
client sends a request to the server and one through the gateway, in turn first and second, over connections
that stay open. Events carry the time at which they were sent. Added: the median of the differences within
pairs, and the difference of the 99th percentiles.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import h11
import trio
from sensorium.actors.transport.connection_limits import Guard, connection_limits
from sensorium.actors.transport.listener import open_listener, serve_connections
from websockets.trio.client import connect

_BODY: Final = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "What is the weather like in Paris?"}]}
).encode()
_SOCKETS: Final = 4
"""So that each sends no more than live audio does."""
_WARM_UP: Final = 50
Ask = Callable[[int], Awaitable[float]]
"""Asks for the time that one exchange takes, in seconds."""


async def answer(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
    """The server's application."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        return
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/v1/stream":
        await stream(float(scope["query_string"].partition(b"=")[2]), send)
        return
    body = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def stream(rate: float, send: Any) -> None:  # noqa: ANN401 (ASGI)
    """Events with the time at which they are sent."""
    fields = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    due = trio.current_time()
    while True:
        due += 1 / rate
        await trio.sleep_until(due)
        body = b"data: %d\n\n" % time.monotonic_ns()
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def serve() -> None:
    """Be the server."""
    listener = open_listener("127.0.0.1", 0)
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await serve_connections(
        answer,
        listener,
        guard=Guard(connection_limits(0, 0, idle_s=600.0)),
        max_message_bytes=1 << 20,
        send_timeout_s=10.0,
        stop=trio.Event(),
        grace_s=0.0,
    )


class Requests:
    """One connection on which requests are sent."""

    def __init__(self, connection: trio.SocketStream, port: int) -> None:
        self._stream = connection
        self._host = f"127.0.0.1:{port}"
        self._http = h11.Connection(h11.CLIENT)

    async def begin(self, method: str, target: str, body: bytes = b"") -> None:
        """Send a request."""
        fields = [
            ("host", self._host),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
        ]
        data = self._http.send(h11.Request(method=method, target=target, headers=fields)) or b""
        data += (self._http.send(h11.Data(data=body)) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        await self._stream.send_all(data)

    async def next(self) -> h11.Event:
        """The answer's next event."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some()))
        assert isinstance(event, h11.Event)
        return event

    async def ask(self, _: int) -> float:
        """One request and its whole answer."""
        began = time.perf_counter()
        await self.begin("POST", "/v1/chat/completions", _BODY)
        while not isinstance(event := await self.next(), h11.EndOfMessage):
            assert not isinstance(event, h11.Response) or event.status_code == 200, event
        took = time.perf_counter() - began
        self._http.start_next_cycle()
        return took


async def pairs(direct: Ask, through: Ask, rate: float, seconds: float) -> list[tuple[float, float]]:
    """So many a second, each the server's own time and the gateway's."""
    found: list[tuple[float, float]] = []
    due = trio.current_time()
    for number in range(int(rate * seconds) + _WARM_UP):
        due += 1 / rate
        await trio.sleep_until(due)
        if number % 2:
            one = await direct(number)
            other = await through(number)
        else:
            other = await through(number)
            one = await direct(number)
        found.append((one, other))
    return found[_WARM_UP:]


async def of_requests(ports: tuple[int, int], rate: float, seconds: float) -> list[tuple[float, float]]:
    """HTTP: a small request and its answer."""
    direct, through = [Requests(await trio.open_tcp_stream("127.0.0.1", port), port) for port in ports]
    return await pairs(direct.ask, through.ask, rate, seconds)


async def of_events(ports: tuple[int, int], rate: float, seconds: float) -> list[tuple[float, float]]:
    """Server-sent events: from when one is sent to when it is there."""
    found: tuple[list[float], list[float]] = ([], [])

    async def follow(port: int, into: list[float]) -> None:
        requests = Requests(await trio.open_tcp_stream("127.0.0.1", port), port)
        await requests.begin("POST", f"/v1/stream?rate={rate}", b"{}")
        while len(into) < rate * seconds + _WARM_UP:
            event = await requests.next()
            if isinstance(event, h11.Data):
                now = time.monotonic_ns()
                sent = [
                    int(line[6:]) for line in bytes(event.data).split(b"\n") if line.startswith(b"data: ")
                ]
                into += [(now - each) / 1e9 for each in sent]

    async with trio.open_nursery() as nursery:
        for port, into in zip(ports, found, strict=True):
            nursery.start_soon(follow, port, into)
            await trio.sleep(0.5 / rate)
    return list(zip(found[0][_WARM_UP:], found[1][_WARM_UP:], strict=False))


async def of_messages(ports: tuple[int, int], rate: float, seconds: float) -> list[tuple[float, float]]:
    """WebSockets: a message of 100 ms of audio, there and back."""
    data = bytes(4800)

    async def ask(sockets: list[Any], number: int) -> float:
        socket = sockets[number // 2 % len(sockets)]
        began = time.perf_counter()
        await socket.send(data)
        assert await socket.recv() == data
        return time.perf_counter() - began

    async with trio.open_nursery() as nursery:
        opened: list[list[Any]] = []
        for port in ports:
            opened.append([])
            for _ in range(_SOCKETS):
                await nursery.start(partial(keep, f"ws://127.0.0.1:{port}/v1/realtime", opened[-1]))
        found = await pairs(partial(ask, opened[0]), partial(ask, opened[1]), rate, seconds)
        nursery.cancel_scope.cancel()
    return found


async def keep(url: str, into: list[Any], *, task_status: trio.TaskStatus[None]) -> None:
    """A WebSocket that stays open."""
    async with connect(url) as socket:
        into.append(socket)
        task_status.started()
        await trio.sleep_forever()


def percentile(values: list[float], share: float) -> float:
    """The smallest value that so many are not above."""
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


async def measure(ports: tuple[int, int], rate: float, seconds: float) -> None:
    """Print a line for each kind."""
    print(f"{'ms':22}{'direct p50':>12}{'p99':>8}{'gateway p50':>13}{'p99':>8}{'added p50':>11}{'p99':>8}")
    kinds = {"request": of_requests, "event of a stream": of_events, "WebSocket, both ways": of_messages}
    for name, kind in kinds.items():
        found = await kind(ports, rate, seconds)
        direct, through = ([1000 * pair[i] for pair in found] for i in (0, 1))
        added = statistics.median(other - one for one, other in zip(direct, through, strict=True))
        one_p99, other_p99 = percentile(direct, 0.99), percentile(through, 0.99)
        print(
            f"{name:22}{statistics.median(direct):12.2f}{one_p99:8.2f}{statistics.median(through):13.2f}"
            f"{other_p99:8.2f}{added:11.2f}{other_p99 - one_p99:8.2f}",
            flush=True,
        )


def started(*command: str) -> tuple[subprocess.Popen[str], int]:
    """A process, and the port that it listens on."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening on"):
            return process, int(line.rsplit(":", 1)[1])
    raise SystemExit("a process ended before it listened")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="for each kind")
    parser.add_argument("--rate", type=float, default=100.0, help="pairs a second")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        trio.run(serve)
        return
    server, port = started(str(Path(__file__)), "--serve")
    url = f"http://127.0.0.1:{port}"
    gateway, through = started("-m", "sensorium", "gateway", url, "--port", "0", "--log-level", "warning")
    try:
        trio.run(measure, (port, through), options.rate, options.seconds)
    finally:
        for process in (gateway, server):
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
