"""One request over a connection of its own, to a numeric address that was vetted: h11 on a trio stream.

Nothing is kept, reused or unpacked; heads are bounded by h11, bodies by whoever takes the pieces. Which names
may be asked for, which answers are good, and whether to try again, is said by whoever asks: `fetcher.py`,
`actors/mcp/client.py`, `actors/calls/callbacks.py`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import h11
import httpx
import trio

from ..config.blocked_networks import Network, is_reachable
from ..config.urls import host_of
from ..runtime.compute_pool import compute
from ..transport.h11_limits import bound_heads
from .dns import Names

logger = logging.getLogger(__name__)

_CONNECT_S: Final = 5.0
"""To one address; a name may have others."""
_MAX_HEAD_BYTES: Final = 64 * 1024
_RECEIVE_BYTES: Final = 64 * 1024
_HEADERS: Final = (
    ("User-Agent", "sensorium"),
    ("Accept", "*/*"),
    ("Accept-Encoding", "identity"),
    ("Connection", "close"),
)

bound_heads()


class BrokenError(Exception):
    """The host could not be reached, broke off or does not speak HTTP; the message is fit for clients."""


class NoAddressError(BrokenError):
    """A name leads to nothing that may be connected to."""


@dataclass(frozen=True, slots=True)
class Head:
    """Of an answer; names of fields in lower case, of several with one name the last."""

    status: int
    fields: dict[str, str]


class Get:
    """An answer that arrives: first `head`, then `body` once."""

    def __init__(self, stream: trio.abc.Stream, target: httpx.URL) -> None:
        self._stream = stream
        self._target = target
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def head(
        self, body: bytes | None = None, fields: Sequence[tuple[str, str]] = (), *, method: str = ""
    ) -> Head:
        """Ask, or post a body, and read until the answer's; `fields` stand in place of our own of the same
        name. Raises BrokenError."""
        host = self._target.netloc.decode("ascii")
        length = () if body is None else (("Content-Length", str(len(body))),)
        given = {name.lower() for name, _ in fields}
        ours = [(name, value) for name, value in _HEADERS if name.lower() not in given]
        request = h11.Request(
            method=method or ("GET" if body is None else "POST"),
            target=self._target.raw_path,
            headers=[("Host", host), *ours, *length, *fields],
        )
        with _broken_connections():
            sent = self._http.send(request) or b""
            if body:
                sent += self._http.send(h11.Data(data=body)) or b""
            sent += self._http.send(h11.EndOfMessage()) or b""
            await self._stream.send_all(sent)
            while True:
                event = await self._next()
                if isinstance(event, h11.Response):
                    return Head(event.status_code, _fields(event))

    async def body(self, take: Callable[[bytes], None]) -> None:
        """Give `take` each piece. Raises BrokenError if it ends before it is whole."""
        while piece := await self.piece():
            take(piece)

    async def piece(self) -> bytes:
        """The next piece of the body, empty at its end. Raises BrokenError if it ends before it is whole."""
        while True:
            with _broken_connections():
                event = await self._next()
            if isinstance(event, h11.Data) and event.data:
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                return b""

    async def _next(self) -> h11.Event:
        while True:
            # A piece may hold thousands of events, as chunks of a byte; between two, others have a turn.
            await trio.lowlevel.checkpoint()
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some(_RECEIVE_BYTES)))
            elif isinstance(event, h11.Event) and not isinstance(event, h11.ConnectionClosed):
                return event
            else:
                raise BrokenError("The connection broke off.")


class Connections:
    """To hosts that clients name: each goes to an address that was vetted just now, and to no other one."""

    def __init__(self, names: Names, networks: Sequence[Network]) -> None:
        """`networks` may be gone to though they are not public."""
        self._names = names
        self._networks = networks
        self._tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def open(self, target: httpx.URL, caller: str) -> AsyncIterator[Get]:
        """Connect to the first address of `target` that answers; with TLS, to nobody but its name.

        Raises BrokenError, and NoAddressError where none is allowed: what DNS knows of names inside is not
        told. The connection ends with the context; `caller` is who asks, empty where all are one."""
        is_tls, host = target.scheme == "https", host_of(target)
        port = target.port or (443 if is_tls else 80)
        found = await self._names.addresses(host, port, caller)
        allowed = [address for address in found if is_reachable(address, self._networks)]
        if not allowed:
            logger.info("%s is not connected to: no address that is allowed among %s", host, list(found))
            raise NoAddressError("The host has no address that this server goes to.")
        if is_tls and self._tls is None:
            self._tls = await compute(tls_context)
        stream: trio.abc.Stream = await _connect(allowed, port)
        try:
            if is_tls and self._tls is not None:
                name = host.rstrip(".")
                secure = trio.SSLStream(stream, self._tls, server_hostname=name, https_compatible=True)
                stream = secure
                with _broken_connections():
                    await secure.do_handshake()
            yield Get(stream, target)
        finally:
            await trio.aclose_forcefully(stream)


def tls_context() -> ssl.SSLContext:
    """How hosts are spoken to with TLS: keys are agreed on over P-256 only, which every host has to speak.

    A host chooses among what it is offered, before it shows a certificate. A finite field of 8192 bits, which
    is offered by default, costs us a tenth of a second, in the loop; so neither TLS 1.2's (the ciphers) nor
    1.3's (the groups, of which Python can set one) are. Source: RFC 8446, section 9.1.
    """
    context = httpx.create_ssl_context()
    ciphers = (each["name"] for each in context.get_ciphers() if not each["name"].startswith("DHE-"))
    context.set_ciphers(":".join(ciphers))
    context.set_ecdh_curve("prime256v1")
    return context


async def _connect(addresses: Sequence[str], port: int) -> trio.SocketStream:
    for address in addresses:
        with trio.move_on_after(_CONNECT_S):
            try:
                return await trio.open_tcp_stream(address, port)
            except OSError:
                continue
    raise BrokenError("The host could not be reached.")


def _fields(response: h11.Response) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}


class _broken_connections:  # noqa: N801 (a context manager)
    """What goes wrong on a connection is a BrokenError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        match error:
            case h11.RemoteProtocolError():
                raise BrokenError("The host does not answer in proper HTTP, or broke off.") from error
            case trio.BrokenResourceError() if isinstance(error.__cause__, ssl.SSLError):
                raise BrokenError("The host does not speak TLS that can be trusted.") from error
            case trio.BrokenResourceError() | OSError():
                raise BrokenError("The connection broke off.") from error
