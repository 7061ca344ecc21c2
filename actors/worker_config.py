"""What a process that runs engines is told at its start, ahead of everything else: which models, and how.

No part of the protocol: a process on another machine would have a configuration of its own. Read
`actors/engine_process/process.py` for who tells it, `actors/engine_process/__main__.py` for who is told.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

import msgspec

from .config.engine import EngineConfig
from .telemetry.logs import LogConfig

if TYPE_CHECKING:
    from .config.server import ServerConfig  # httpx with it, which who is told has no use for

_SIZE: Final = struct.Struct("!I")


class ModelOrder(msgspec.Struct, frozen=True):
    """One model: its public name, where it is found, and how it runs."""

    name: str
    model: str
    config: EngineConfig


class Orders(msgspec.Struct, frozen=True):
    """All of them, in the order in which they are asked for by number."""

    models: tuple[ModelOrder, ...]
    max_pixels: int
    """Of the largest image that will come; 0: what a model itself allows."""
    logs: LogConfig
    num_sharing: int = 1
    """Processes that open the same models on the same device; each takes its share of the memory."""
    host_bytes: int | None = None
    """Memory of the host that was free before the first of them started; None: there is no other."""
    known_checkpoints: tuple[str, ...] = ()
    """Digests of files that were sent before, by a process that is gone."""


def orders_of(config: ServerConfig) -> Orders:
    """What a server of such a configuration asks for."""
    models = zip(config.public_names, config.models, strict=True)
    return Orders(
        tuple(ModelOrder(name, model, config.engine_of(name)) for name, model in models),
        max_pixels=config.files.max_image_pixels,
        logs=config.logs,
    )


def written(orders: Orders) -> bytes:
    """As bytes, their size in front."""
    data = msgspec.msgpack.encode(orders)
    return _SIZE.pack(len(data)) + data


def read(sock: socket.socket) -> Orders:
    """From a blocking socket, and nothing of what comes behind. Raises EOFError."""
    (size,) = _SIZE.unpack(_exactly(sock, _SIZE.size))
    return msgspec.msgpack.decode(_exactly(sock, size), type=Orders)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError("who started this process is gone")
        data += more
    return data
