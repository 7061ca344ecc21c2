"""Connects to what of ours listens on another machine, and proves who we are. Tries until it is let in.

Read `handshake.py` for the proof, `entrance.py` for the other end.
"""

from __future__ import annotations

import logging
import math
import ssl
from typing import Final

import trio

from ..config.validation import HostPort
from .handshake import ENGINES, HANDSHAKE_S, HandshakeError, Service, ask_in

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""From one try to connect to the next."""
_WARN_EVERY_S: Final = 60.0


async def connected(
    name: str,
    address: HostPort,
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
                return await connect_once(address, secret, tls, service)
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, HandshakeError) as error:
            said = _reason(error)
        if said != reason or trio.current_time() >= warned_at + _WARN_EVERY_S:
            warned_at, reason = trio.current_time(), said
            logger.warning("cannot use the %s: %s; it is tried again", name, said)
        await trio.sleep(AGAIN_S)


async def connect_once(
    address: HostPort, secret: bytes, tls: ssl.SSLContext | None, service: Service
) -> trio.abc.Stream:
    """A stream to what listens at `address` and has let us in. Takes as long as that does.

    Raises OSError, BrokenResourceError and HandshakeError.
    """
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
