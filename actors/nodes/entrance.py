"""Lets in those who know the secret, at an address where something of ours listens.

Knows nothing of what is said afterwards. Read `handshake.py` for the proof; `server.py` and
`actors/cluster/directory.py` are behind it.
"""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from ..runtime.panic_guard import contained
from .handshake import ENGINES, HANDSHAKE_S, HandshakeError, Service, let_in

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 16
"""Connections that have not proved who they are; more are closed at once."""
MAX_CALLERS: Final = 256
"""Connections that have."""


class Entrance:
    """Where connections to one service come in."""

    def __init__(
        self,
        secret: bytes,
        tls: ssl.SSLContext | None,
        service: Service = ENGINES,
        *,
        max_pending: int = MAX_PENDING,
        max_callers: int = MAX_CALLERS,
        log: int = logging.INFO,
    ) -> None:
        """`log`: the level of the lines that say who comes and goes."""
        self._max_pending, self._max_callers = max_pending, max_callers
        self._log = log
        self._secret = secret
        self._tls = tls
        self._service = service
        self._num_pending = self._num_callers = 0
        self._num_refused, self._reported_at = 0, -math.inf

    @asynccontextmanager
    async def admitted(self, tcp: trio.SocketStream) -> AsyncIterator[trio.abc.Stream | None]:
        """The stream of one that has proved who it is, closed at the end; None for one that has not."""
        peer = ":".join(map(str, tcp.socket.getpeername()[:2]))
        if self._num_pending >= self._max_pending or self._num_callers >= self._max_callers:
            await trio.aclose_forcefully(tcp)
            yield None
            return
        stream: trio.abc.Stream = (
            tcp if self._tls is None else trio.SSLStream(tcp, self._tls, server_side=True)
        )
        if not await self._has_proved(stream, peer):
            await trio.aclose_forcefully(stream)
            yield None
            return
        logger.log(self._log, "%s is served", peer)
        self._num_callers += 1
        try:
            yield stream
        finally:
            self._num_callers -= 1
            await trio.aclose_forcefully(stream)
            logger.log(self._log, "%s has left", peer)

    async def _has_proved(self, stream: trio.abc.Stream, peer: str) -> bool:
        self._num_pending += 1
        try:
            with trio.fail_after(HANDSHAKE_S):
                await let_in(stream, self._secret, self._service)
        except (trio.TooSlowError, trio.BrokenResourceError, HandshakeError, ssl.SSLError, OSError) as error:
            self._report_refused(peer, str(error) or "it did not say who it is in time")
            return False
        finally:
            self._num_pending -= 1
        return True

    def _report_refused(self, peer: str, why: str) -> None:
        """In the log, once a second at most: a storm of them is to fill no disk."""
        self._num_refused += 1
        if trio.current_time() < self._reported_at + 1.0:
            return
        more = f" ({self._num_refused - 1} more before it)" if self._num_refused > 1 else ""
        logger.warning("%s was not let in: %s%s", peer, why, more)
        self._reported_at, self._num_refused = trio.current_time(), 0


async def accept_all(
    listener: trio.SocketListener, serve: Callable[[trio.SocketStream], Awaitable[None]]
) -> None:
    """Serve every connection in a task of its own, until cancelled; one that fails ends alone."""
    await trio.serve_listeners(partial(_contained, serve), [listener])


async def _contained(
    serve: Callable[[trio.SocketStream], Awaitable[None]], stream: trio.SocketStream
) -> None:
    try:
        with contained:
            await serve(stream)
    except* Exception:
        logger.exception("a connection failed")
