"""One WebSocket as an ASGI application sees it: the `websockets` library keeps the protocol, without I/O.

Nothing is read that the application does not ask for, so a slow session slows its client down and nobody
else. Between reads others go first, the rate of frames is bounded, and one with many small frames is read at
intervals, so that it costs about as much as one with a few larger ones. One that sends frames without content
(empty fragments, pings) for its own sake is closed with 1008. Errors of the protocol end with 1002, 1007 or
1009, and the application is told the same code. No extension is agreed on: with permessage-deflate a read of
some KiB may hold a thousand times as much, and audio does not deflate.
"""

from __future__ import annotations

import codecs
import io
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import h11
import trio
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader, InvalidUpgrade
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Protocol, Side, State
from websockets.server import ServerProtocol

from ...protocols.errors import BadRequestError, ClientError, UpgradeRequiredError
from ..runtime.compute_pool import LANE
from ..runtime.fair_semaphore import FairSemaphore
from ..runtime.nursery import open_work
from ..runtime.panic_guard import contained
from ..telemetry.statistics import ConnectionStatistics
from .frame_splitter import FrameCutter
from .http_exchange import Exchange
from .rate_limit import Allowance
from .tcp_stream import Wire

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
Message = dict[str, Any]

logger = logging.getLogger(__name__)
_silent = logging.getLogger(f"{__name__}.protocol")
_silent.setLevel(logging.WARNING)  # the library tells every opening and closing

_READ_BYTES: Final = 8 * 1024
"""Read at once where frames may be small; more inside of a large one."""
_MAX_READ_BYTES: Final = 32 * 1024
_FRAMES: Final = 4000
_FRAMES_PER_S: Final = 1000
"""Frames that are read at once, and a second: ten times what live audio in pieces of 10 ms needs."""
_AT_ONCE: Final = 16
"""Messages that one read brought, taken in by the application before others have a turn."""
_OWN_FRAMES: Final = 200
_OWN_FRAMES_PER_S: Final = 200
"""What live audio sends at the most. WebSockets with more take turns, so that many of them leave others as
much of the loop as one does."""
_CHATTY_FRAMES: Final = 120
_CHATTY_FRAMES_PER_S: Final = 60
"""What a client of live audio in frames of 20 ms sends, and some events besides. A WebSocket with more frames
is read every `_GATHER_S` at the most: what came meanwhile costs one read, and is handled together."""
_GATHER_S: Final = 0.02
_SMALL_BYTES: Final = 16
"""A fragment of fewer bytes has no content worth its frame."""
_IDLE_FRAMES: Final = 1000
_IDLE_FRAMES_PER_S: Final = 20
_PING_INTERVAL_S: Final = 20.0
BYTE_BOUND: Final = "sensorium.byte_bound"
"""Key of the scope: called with a number of bytes, it lets the client send no more; without, any number."""
CLOSE_S: Final = 2.0
"""How long the client may take to close after us."""

PROXY_HINT: Final = "A proxy in between has to pass the `Upgrade` and `Connection` headers on."


class GoneError(OSError):
    """Nothing can be sent on this WebSocket any more."""


def handshake(request: h11.Request) -> Response:
    """The answer to a request that opens a WebSocket rightly.

    Raises UpgradeRequiredError (of another version, or without `Connection: Upgrade`) and BadRequestError,
    also for control characters in a header's value, which h11 lets pass.
    """
    protocol = ServerProtocol(logger=_silent)
    try:
        headers = Headers(
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        )
    except InvalidHeader as error:
        raise BadRequestError(f"The WebSocket was not opened: {error}.") from None
    version = f"HTTP/{request.http_version.decode('ascii')}"
    method = request.method.decode("ascii")
    response = protocol.accept(Request(request.target.decode("latin-1"), headers, method, version))
    if response.status_code == 101:
        return response
    if isinstance(protocol.handshake_exc, InvalidUpgrade):
        raise UpgradeRequiredError(f"{protocol.handshake_exc}. {PROXY_HINT}")
    if headers.get_all("Sec-WebSocket-Version") not in ([], ["13"]):
        raise UpgradeRequiredError("The version of WebSocket spoken here is 13 (RFC 6455).")
    raise BadRequestError(f"The WebSocket was not opened: {protocol.handshake_exc}.")


class WebSocketConnection:
    """ASGI's `receive` and `send` for one WebSocket. Each may be waited for by one task."""

    def __init__(
        self,
        wire: Wire,
        exchange: Exchange,
        response: Response,
        read_ahead: bytes,
        *,
        max_message_bytes: int,
        turns: FairSemaphore,
    ) -> None:
        """`response` is the answer where the application accepts; otherwise it answers by `exchange`. `turns`
        are those of all WebSockets that send much."""
        self._wire = wire
        self._exchange = exchange
        self._response = response
        self._protocol = Protocol(Side.SERVER, max_size=max_message_bytes, logger=_silent)
        self._cutter = FrameCutter(max_bytes=max_message_bytes)
        self._read_ahead = read_ahead
        self._read_bytes = _READ_BYTES
        self._has_begun = False
        self._is_accepted = False
        self._messages: deque[Message] = deque()
        self._num_left = 0
        """Of the messages, those that may be taken in before others have a turn."""
        self._text: io.StringIO | None = None
        self._binary: io.BytesIO | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._frames = Allowance(burst=_FRAMES, per_s=_FRAMES_PER_S)
        self._own_frames = Allowance(burst=_OWN_FRAMES, per_s=_OWN_FRAMES_PER_S)
        self._takes_turns = False
        self._turns = turns
        self._chatty_frames = Allowance(burst=_CHATTY_FRAMES, per_s=_CHATTY_FRAMES_PER_S)
        self._next_read_at = -math.inf
        self._idle_frames = Allowance(burst=_IDLE_FRAMES, per_s=_IDLE_FRAMES_PER_S)
        self._num_bytes_left = math.inf
        self.is_flood = False

    async def run(self, app: AsgiApp, scope: dict[str, Any], statistics: ConnectionStatistics) -> None:
        """Serve the application on it to its end, also of the connection where it was accepted."""
        code = CloseCode.NORMAL_CLOSURE
        scope[BYTE_BOUND] = self.bound
        try:
            async with open_work() as nursery:
                nursery.start_soon(self._ping)
                # One that ends a nursery leaves hundreds of objects in a cycle.
                with suppress(GoneError), contained:
                    await app(scope, self.receive, self.send)
                nursery.cancel_scope.cancel()
        except GoneError:  # out of a nursery of the application's own
            pass
        except Exception:
            logger.exception("a WebSocket failed; it is closed, the others go on")
            code = CloseCode.INTERNAL_ERROR
        statistics.num_floods += self.is_flood
        if not self._is_accepted:
            return
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code)
        self._collect()
        await self._wire.finish(silence_s=CLOSE_S, total_s=CLOSE_S)

    def bound(self, num_bytes: float = math.inf) -> None:
        """Let so many bytes be read from now on, all together; one more ends it with 1009."""
        self._num_bytes_left = num_bytes

    async def receive(self) -> Message:
        """`websocket.connect`, the client's messages, and at their end `websocket.disconnect` with a code."""
        if not self._has_begun:
            self._has_begun = True
            return {"type": "websocket.connect"}
        if not self._is_accepted:
            self._exchange.is_body_read = True
            while (await self._exchange.receive())["type"] != "http.disconnect":
                pass
            return {"type": "websocket.disconnect", "code": CloseCode.ABNORMAL_CLOSURE}
        while not self._messages:
            if self._protocol.eof_sent or self._wire.is_broken:
                return {"type": "websocket.disconnect", "code": self._close_code()}
            try:
                await self._read()
                self._collect()
                await self._wire.flush()
            except trio.BrokenResourceError:
                continue
        if not self._num_left:
            await self._let_others_go_first()
            self._num_left = _AT_ONCE
        self._num_left -= 1
        return self._messages.popleft()

    async def _let_others_go_first(self) -> None:
        if not self._takes_turns:
            await trio.lowlevel.checkpoint()
            return
        async with self._turns.held_by(LANE.get().caller):
            await trio.lowlevel.checkpoint()

    async def send(self, message: Message) -> None:
        """Send what the application has to say. Raises GoneError if it cannot be said any more."""
        match message["type"]:
            case "websocket.accept":
                self._accept(message)
            case "websocket.send" if self._protocol.state is State.OPEN:
                text = message.get("text")
                if text is not None:
                    self._protocol.send_text(text.encode())
                else:
                    self._protocol.send_binary(message["bytes"])
            case "websocket.close" if self._is_accepted and self._protocol.state is State.OPEN:
                self._protocol.send_close(message.get("code", 1000), message.get("reason") or "")
            case "websocket.close" if not self._is_accepted:
                await self._exchange.refuse(ClientError("The WebSocket was refused."), 403)
                return
            case "websocket.http.response.start" | "websocket.http.response.body" as kind:
                await self._exchange.send({**message, "type": kind.removeprefix("websocket.")})
                return
            case _:
                raise GoneError("the WebSocket is closed")
        self._collect()
        try:
            await self._wire.flush()
        except trio.BrokenResourceError as error:
            raise GoneError("the WebSocket is broken") from error

    def _accept(self, message: Message) -> None:
        subprotocol = message.get("subprotocol")
        if subprotocol is not None:
            self._response.headers["Sec-WebSocket-Protocol"] = subprotocol
        for name, value in message.get("headers", ()):
            self._response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._wire.write(self._response.serialize())
        self._is_accepted = True

    async def _read(self) -> None:
        """Some bytes from the client, and what they say."""
        await self._frames.earn()
        data = self._read_ahead
        if not data:
            if self._next_read_at > trio.current_time():
                await trio.sleep_until(self._next_read_at)
            data = await self._wire.receive(self._read_bytes)
        has_more = len(data) >= self._read_bytes
        now, self._read_ahead = self._cutter.cut(data)
        self._num_bytes_left -= len(data) - len(self._read_ahead)
        if self._num_bytes_left < 0:
            self._fail(CloseCode.MESSAGE_TOO_BIG, "too many bytes before it is known who sends them")
            return
        if data:
            self._protocol.receive_data(now)
        else:
            self._protocol.receive_eof()
        frames = self._protocol.events_received()
        self._read_bytes = _READ_BYTES if frames else min(2 * self._read_bytes, _MAX_READ_BYTES)
        self._frames.spend(len(frames))
        self._takes_turns = not self._own_frames.spend(len(frames))
        self._num_left = 0 if self._takes_turns else _AT_ONCE
        if not self._chatty_frames.spend(len(frames)) and not has_more:
            self._next_read_at = trio.current_time() + _GATHER_S
        num_idle = 0
        try:
            for frame in frames:
                assert isinstance(frame, Frame)
                num_idle += self._take(frame)
                frame.data = b""  # the parser keeps its last frame until the next has come
        except UnicodeDecodeError as error:
            self._fail(CloseCode.INVALID_DATA, f"{error.reason} at position {error.start}")
        if num_idle and not self._idle_frames.spend(num_idle):
            self.is_flood = True
            self._fail(CloseCode.POLICY_VIOLATION, "too many frames without content")

    def _take(self, frame: Frame) -> bool:
        """Whether the frame was without content. Raises UnicodeDecodeError."""
        match frame.opcode:
            case Opcode.TEXT:
                self._text = io.StringIO()
            case Opcode.BINARY:
                self._binary = io.BytesIO()
            case Opcode.CONT:
                pass
            case _:
                return True
        if self._text is not None:
            self._text.write(self._decoder.decode(frame.data, frame.fin))
            if frame.fin:
                self._messages.append({"type": "websocket.receive", "text": self._text.getvalue()})
                self._text = None
        elif self._binary is not None:
            self._binary.write(frame.data)
            if frame.fin:
                self._messages.append({"type": "websocket.receive", "bytes": self._binary.getvalue()})
                self._binary = None
        is_whole = frame.fin and frame.opcode is not Opcode.CONT
        return not is_whole and len(frame.data) < _SMALL_BYTES

    def _fail(self, code: CloseCode, reason: str) -> None:
        if not self._protocol.eof_sent:
            self._protocol.fail(code, reason)

    def _close_code(self) -> int:
        """The client's code; ours, where it broke the protocol; 1006 if the connection was lost."""
        protocol = self._protocol
        if isinstance(protocol.parser_exc, EOFError) or not protocol.eof_sent:
            return CloseCode.ABNORMAL_CLOSURE
        if protocol.close_rcvd is not None and protocol.parser_exc is None:
            return protocol.close_rcvd.code
        return CloseCode.PROTOCOL_ERROR if protocol.close_sent is None else protocol.close_sent.code

    def _collect(self) -> None:
        """What the protocol has to say goes on its way; the end of the stream is sent by `Wire.finish`."""
        for data in self._protocol.data_to_send():
            self._wire.write(data)

    async def _ping(self) -> None:
        """Keeps the way open through proxies, and shows the kernel a peer that has vanished."""
        while True:
            await trio.sleep(_PING_INTERVAL_S)
            if self._is_accepted and self._protocol.state is State.OPEN:
                self._protocol.send_ping(b"")
                self._collect()
                try:
                    await self._wire.flush()
                except trio.BrokenResourceError:
                    return
