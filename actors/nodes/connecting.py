"""Connects to what of ours listens on another machine, and proves who we are. Tries until it is let in.

Read `handshake.py` for the proof, `entrance.py` for the other end.
"""

from __future__ import annotations

import logging
import math
import ssl
from dataclasses import dataclass
from typing import Final

import trio

from .handshake import ENGINES, HANDSHAKE_S, HandshakeError, Service, ask_in

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""From one try to connect to the next."""
_WARN_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where engines, or their directory, listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, *, lowest_port: int = 1) -> NodeAddress:
        """HOST:PORT or [ADDRESS]:PORT. Raises ValueError."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not lowest_port <= int(port) < 65_536:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


async def connected(
    name: str,
    address: NodeAddress,
    secret: bytes,
    tls: ssl.SSLContext | None = None,
    service: Service = ENGINES,
) -> trio.abc.Stream:
    """A stream to `address`, once what listens there has let us in. `name` is for the log, which has every
    new reason why it has not."""
    warned_at, reason = -math.inf, ""
    while True:
        try:
            with trio.fail_after(HANDSHAKE_S):
                return await _connect(address, secret, tls, service)
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, HandshakeError) as error:
            said = _reason(error)
        if said != reason or trio.current_time() >= warned_at + _WARN_EVERY_S:
            warned_at, reason = trio.current_time(), said
            logger.warning("cannot use the %s: %s; it is tried again", name, said)
        await trio.sleep(AGAIN_S)


async def _connect(
    address: NodeAddress, secret: bytes, tls: ssl.SSLContext | None, service: Service
) -> trio.abc.Stream:
    tcp = await trio.open_tcp_stream(address.host, address.port)
    stream: trio.abc.Stream = tcp
    try:
        if tls is not None:
            stream = trio.SSLStream(tcp, tls, server_hostname=address.host)
        await ask_in(stream, secret, service)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return stream


def _reason(error: Exception) -> str:
    if isinstance(error, trio.TooSlowError):
        return f"no answer within {HANDSHAKE_S:g} s"
    if isinstance(error, trio.BrokenResourceError):
        return str(error.__cause__ or "the connection broke")
    return str(error)
