"""One WebSocket to a server: `websockets` keeps the protocol, without I/O, on a trio stream.

Nothing is read that is not asked for, so that a slow reader holds up only its own server.

`actors/gateway/live_relay.py` and `actors/http/fronts/sockets.py` relay over these.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import trio
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidHeader
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import Event, State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from .connections import ServerGoneError

_silent = logging.getLogger(f"{__name__}.protocol")
_silent.setLevel(logging.WARNING)

_READ_BYTES: Final = 64 * 1024
_OPEN_S: Final = 10.0
_CLOSE_S: Final = 2.0
_OWN_CODES: Final = frozenset({1005, 1006, 1015})
"""Said by no close frame (RFC 6455, 7.4.1)."""


class RefusedError(Exception):
    """The server answered the handshake otherwise."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ended the WebSocket."""

    code: int
    reason: str


class LiveConnection:
    """An open WebSocket to a server. One task may receive while others send."""

    def __init__(self, stream: trio.abc.Stream, protocol: ClientProtocol) -> None:
        self._stream = stream
        self._protocol = protocol
        self._sending = trio.Lock()
        self._messages: deque[str | bytes] = deque()
        self._parts: list[bytes] = []
        self._is_text = False

    @property
    def subprotocol(self) -> str | None:
        """What the server agreed on."""
        return self._protocol.subprotocol

    @classmethod
    async def open(
        cls,
        open_stream: Callable[[], Awaitable[trio.abc.Stream]],
        *,
        authority: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        subprotocols: Sequence[str],
        max_message_bytes: int | None,
    ) -> LiveConnection:
        """Connect by `open_stream`, and shake hands. `max_message_bytes` bounds what the server says.

        Raises ServerGoneError, as `open_stream` does, and RefusedError for another answer than 101.
        """
        protocol = ClientProtocol(
            WebSocketURI(False, "server", 80, target.partition("?")[0], target.partition("?")[2], None, None),
            subprotocols=[Subprotocol(each) for each in subprotocols] or None,
            max_size=max_message_bytes,
            logger=_silent,
        )
        request = protocol.connect()
        del request.headers["Host"]  # setting a field adds one
        request.headers["Host"] = authority
        try:
            for name, value in headers:
                request.headers[name] = value
        except InvalidHeader as error:
            raise ServerGoneError(f"cannot be called: {error}") from error
        stream = await open_stream()
        connection = cls(stream, protocol)
        try:
            with trio.fail_after(_OPEN_S):
                protocol.send_request(request)
                await connection._flush()
                while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
                    await connection._read()
        except trio.TooSlowError:
            await connection.drop()
            raise ServerGoneError("does not answer the handshake") from None
        except BaseException:
            await connection.drop()
            raise
        events = protocol.events_received()
        answer = next((each for each in events if isinstance(each, Response)), None)
        if protocol.handshake_exc is None:
            connection._collect(
                events
            )  # the first messages, and a close, may come together with the handshake
            return connection
        await connection.drop()
        if (
            answer is None
            or not isinstance(protocol.handshake_exc, InvalidHandshake)
            or answer.status_code == 101
        ):
            raise ServerGoneError(f"does not answer the handshake: {protocol.handshake_exc}")
        raise RefusedError(answer)

    async def send(self, message: str | bytes) -> None:
        """Send one message. Raises ServerGoneError where the server takes no more."""
        if self._protocol.state is not State.OPEN:
            raise ServerGoneError("the WebSocket is closed")
        if isinstance(message, str):
            self._protocol.send_text(message.encode())
        else:
            self._protocol.send_binary(message)
        await self._flush()

    async def receive(self) -> str | bytes | Closed:
        """The next message, or how the WebSocket was closed; cancelling loses nothing.

        Raises ServerGoneError if it ended without a close.
        """
        while not self._messages:
            self._take()
            if self._messages:
                break
            closed = self._protocol.close_rcvd
            if closed is not None:
                return Closed(closed.code, closed.reason)
            if self._protocol.parser_exc is not None or self._protocol.state is State.CLOSED:
                raise ServerGoneError(f"the WebSocket broke: {self._protocol.parser_exc}")
            await self._read()
            await self._flush()
        await trio.lowlevel.checkpoint()
        return self._messages.popleft()

    async def close(self, code: int, reason: str = "") -> None:
        """Say goodbye as the client did, and wait a moment for the answer."""
        with trio.move_on_after(_CLOSE_S, shield=True):
            try:
                if self._protocol.state is State.OPEN:
                    if code in _OWN_CODES or not 1000 <= code < 5000:
                        self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
                    else:
                        self._protocol.send_close(code, reason)
                    await self._flush()
                while self._protocol.state is not State.CLOSED:
                    await self._read()
            except ServerGoneError:
                pass
        await self.drop()

    async def goodbye(self) -> None:
        """Close without waiting for an answer, also while another task receives: that one raises."""
        with trio.move_on_after(_CLOSE_S, shield=True), suppress(ServerGoneError):
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
                await self._flush()
        await self.drop()

    async def drop(self) -> None:
        """Close without a goodbye: the server keeps the session for its client's return."""
        await trio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        """Some bytes from the server."""
        try:
            data = await self._stream.receive_some(_READ_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise ServerGoneError("the connection broke") from error
        if data:
            self._protocol.receive_data(bytes(data))
        else:
            self._protocol.receive_eof()

    def _take(self) -> None:
        """Messages of the frames that have come."""
        self._collect(self._protocol.events_received())

    def _collect(self, events: Sequence[Event]) -> None:
        for frame in events:
            if not isinstance(frame, Frame) or frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                continue
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            if frame.fin and not self._parts:
                self._deliver(bytes(frame.data))
                continue
            self._parts.append(bytes(frame.data))
            if frame.fin:
                self._deliver(b"".join(self._parts))
                self._parts.clear()

    def _deliver(self, data: bytes) -> None:
        self._messages.append(data.decode(errors="replace") if self._is_text else data)

    async def _flush(self) -> None:
        async with self._sending:
            data = b"".join(self._protocol.data_to_send())
            if not data:
                return
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
                raise ServerGoneError("the connection broke") from error
