"""What the process of one engine and who started it tell each other, through a pair of blocking sockets.

Read `ray_actor.py` for who starts it, `child.py` for the process.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, Literal, TypeVar

import msgspec

from ..worker_config import Orders

_SIZE: Final = struct.Struct("!I")


class EngineOrder(msgspec.Struct, frozen=True):
    """What an engine does."""

    orders: Orders
    secret: bytes
    """That servers have to know, 16 bytes or more."""
    drain_s: float
    """Seconds that its requests may take to finish when it has to end."""
    tls: tuple[str, ...] = ()
    """Files with certificate, key and authority (PEM), on its machine; empty: no TLS."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first message to the process: listen on a free port of `host`."""

    order: EngineOrder
    host: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End when nothing runs any more, within the order's `drain_s`."""


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The models are loaded."""

    address: str
    """Where it listens, HOST:PORT."""


class NotStarted(msgspec.Struct, frozen=True, tag="not_started"):
    """It cannot serve, and ends."""

    reason: str
    kind: Literal["model", "other"] = "other"
    """model: it would fail again."""


Message = Start | Stop | Started | NotStarted
MessageT = TypeVar("MessageT", Start, Stop, Started, NotStarted)

_DECODER: Final = msgspec.msgpack.Decoder(Message)


def send(sock: socket.socket, message: Message) -> None:
    """Send a message. Raises OSError where the other end is gone."""
    data = msgspec.msgpack.encode(message)
    sock.sendall(_SIZE.pack(len(data)) + data)


def receive(sock: socket.socket) -> Message | None:
    """The next message; None where the other end is gone. Blocks."""
    try:
        head = _exactly(sock, _SIZE.size)
        message: Message = _DECODER.decode(_exactly(sock, *_SIZE.unpack(head)))
    except (EOFError, OSError):
        return None
    return message


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
