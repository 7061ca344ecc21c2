"""A WebSocket with many small messages is read at intervals; one that sends as live audio does, at once.

The time is virtual, and the peer is the other end of a socket pair, which the kernel fills at once.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio
from sensorium.actors.runtime.fair_semaphore import FairSemaphore
from sensorium.actors.telemetry.statistics import ConnectionStatistics
from sensorium.actors.transport.http_exchange import Exchange
from sensorium.actors.transport.tcp_stream import Wire
from sensorium.actors.transport.websocket import WebSocketConnection, handshake
from support.wire import HANDSHAKE, frame, h11_request

BINARY, PING = 2, 9
LIVE_S = 10.0


@dataclass
class Taken:
    """What an application received, and when."""

    messages: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    num_reads: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            self.messages.append(message["bytes"])
            self.times.append(trio.current_time())


@asynccontextmanager
async def talking(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Taken, trio.socket.SocketType]]:
    """An application, and the client's end of its connection, after the handshake."""
    taken = Taken()
    receive = Wire.receive

    async def counted(wire: Wire, max_bytes: int) -> bytes:
        data = await receive(wire, max_bytes)
        taken.num_reads += 1
        return data

    monkeypatch.setattr(Wire, "receive", counted)
    ours, theirs = (trio.socket.from_stdlib_socket(each) for each in socket.socketpair())
    request = h11_request(HANDSHAKE)
    connection = WebSocketConnection(
        Wire(ours, send_timeout_s=60.0),
        cast(Exchange, None),  # of a request that is refused
        handshake(request),
        b"",
        max_message_bytes=1 << 20,
        turns=FairSemaphore(),
    )
    with theirs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run, taken, {}, ConnectionStatistics())
            await theirs.recv(65_536)
            yield taken, theirs
            theirs.shutdown(socket.SHUT_WR)


async def speak(client: trio.socket.SocketType, interval_s: float, taken: Taken) -> list[float]:
    """Numbered messages for `LIVE_S`; how long each one took to the application."""
    sent = []
    begin = trio.current_time()
    for number in range(round(LIVE_S / interval_s)):
        await trio.sleep_until(begin + number * interval_s)
        sent.append(trio.current_time())
        await client.send(frame(BINARY, number.to_bytes(4, "big")))
    await trio.sleep(1.0)
    assert taken.messages == [number.to_bytes(4, "big") for number in range(len(sent))]
    return [took - came for came, took in zip(sent, taken.times, strict=True)]


@pytest.mark.parametrize("interval_s", [0.02, 0.032, 0.1])
async def test_live_audio_is_taken_as_it_comes(
    interval_s: float, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    async with talking(monkeypatch) as (taken, client):
        assert max(await speak(client, interval_s, taken)) == 0.0


@pytest.mark.parametrize("interval_s", [0.001, 0.005, 0.01])
async def test_small_messages_are_read_together_and_none_is_lost(
    interval_s: float, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """Up to 120 messages are ahead of what is expected, and read as they come."""
    async with talking(monkeypatch) as (taken, client):
        latency_s = await speak(client, interval_s, taken)
    assert taken.num_reads < 50 * LIVE_S + 320
    assert max(latency_s) <= 0.021


async def test_a_burst_after_a_standstill_of_the_network_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    async with talking(monkeypatch) as (taken, client):
        await trio.sleep(1.0)
        await client.send(b"".join(frame(BINARY, bytes(640)) for _ in range(50)))
        began = trio.current_time()
        await client.send(frame(BINARY, b"last"))
        await trio.sleep(1.0)
    assert len(taken.messages) == 51
    assert taken.times[-1] == began


async def test_a_recording_in_small_messages_is_read_as_fast_as_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """Reads that bring as much as they may do not wait: the bound is that of frames a second."""
    num = 3000
    async with talking(monkeypatch) as (taken, client):
        began = trio.current_time()
        for _ in range(num):
            await client.send(frame(BINARY, bytes(640)))
        await trio.sleep(1.0)
    assert len(taken.messages) == num
    assert taken.times[-1] - began < 0.5


async def test_pings_between_messages_keep_their_place_and_are_answered(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    async with talking(monkeypatch) as (taken, client):
        await speak(client, 0.005, taken)
        await client.send(frame(BINARY, b"before") + frame(PING, b"p") + frame(BINARY, b"after"))
        await trio.sleep(0.1)
        assert taken.messages[-2:] == [b"before", b"after"]
        assert await client.recv(64) == b"\x8a\x01p"
