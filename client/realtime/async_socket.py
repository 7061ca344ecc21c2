"""The socket of a live session for asynchronous code, under asyncio and trio alike.

Knows neither what is sent nor what it means: that is a `LiveCore`'s (`client/realtime/machine.py`). Sessions
on it are `client/realtime/async_transcription.py` (transcribing) and `client/realtime/async_conversation.py`
(answering).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, Protocol

import anyio
import sniffio
from anyio.abc import TaskGroup, TaskStatus
from websockets.exceptions import ConnectionClosed

from ...protocols.realtime.codec import decode_server_event
from ..connection import OPEN_TIMEOUT_S, notice_loss, socket_arguments
from ..errors import SDKError, SessionClosedError
from ..options import ClientOptions
from .events import Event
from .machine import TWO_READERS, AudioChunk, LeftError, LiveCore, SessionShell
from .resume import ATTEMPT_ERRORS, CONNECT_TIMEOUT_S, greeting, waits

CANCELLED_CLOSE_S: Final = 0.5
"""How long a cancelled session may take to say goodbye: the server would wait for its return."""


class Socket(Protocol):
    """The part of websockets' asyncio and trio connections that is used here, where they agree."""

    async def send(self, message: str | bytes) -> None:
        """Send one frame; raises ConnectionClosed."""

    async def recv(self) -> str | bytes:
        """The next frame; raises ConnectionClosed. Cancelling it loses nothing."""
        ...


OpenSocket = Callable[[float], AbstractAsyncContextManager[Socket]]
"""Connects, within a time limit in seconds."""


def open_socket(url: str, options: ClientOptions, limit_s: float) -> AbstractAsyncContextManager[Socket]:
    """The WebSocket client of the library this task runs under."""
    arguments: dict[str, Any] = socket_arguments(options, limit_s)
    is_trio = sniffio.current_async_library() == "trio"
    return (_open_trio_socket if is_trio else _open_asyncio_socket)(url, arguments)


@asynccontextmanager
async def _open_trio_socket(url: str, arguments: dict[str, Any]) -> AsyncIterator[Socket]:
    from websockets.trio.client import connect as trio_connect

    async with trio_connect(url, **arguments) as connection:
        stream: Any = connection.stream
        notice_loss(getattr(stream, "transport_stream", stream).socket)
        yield connection


@asynccontextmanager
async def _open_asyncio_socket(url: str, arguments: dict[str, Any]) -> AsyncIterator[Socket]:
    from websockets.asyncio.client import connect as asyncio_connect

    async with asyncio_connect(url, **arguments) as connection:
        notice_loss(connection.transport.get_extra_info("socket"))
        try:
            yield connection
        except Exception:
            raise
        except BaseException:
            # Cancelled: the closing handshake would be, too, and leave the transport open.
            connection.transport.abort()
            raise


class AsyncLiveShell(SessionShell):
    """An open live session. Sending and receiving may happen in different tasks.

    Cancelling a receive loses no event. What a call sends arrives whole and in order once it has begun to,
    also when it is cancelled; only of a chunk that is cut into several frames the rest is lost then. A
    connection that is lost is opened again by `connect`, for as long as the server's grace allows; sending
    and receiving wait meanwhile. A `Resumed` event tells of it.
    """

    def __init__(self, core: LiveCore, tasks: TaskGroup, *, timeout_s: float, connect: OpenSocket) -> None:
        super().__init__(core)
        self._tasks = tasks
        self._timeout_s = timeout_s
        self._connect = connect
        self._keeper: _Keeper
        self._pending: deque[Event] = deque()
        self._sending = anyio.Lock()  # keeps the frames of one call together
        self._written: _Written | None = None  # how the newest frames fare
        self._receiving: anyio.CancelScope | None = None  # while somebody does
        self._coming_back = anyio.CancelScope()  # around attempts to reconnect
        self._closed = False

    @property
    def _socket(self) -> Socket:
        return self._keeper.socket

    async def connect(self) -> None:
        """Open the first connection. Raises OSError and WebSocketException."""
        self._keeper = _Keeper(self._connect)
        await self._tasks.start(self._keeper.run, OPEN_TIMEOUT_S)

    async def close(self, limit_s: float) -> None:
        """Say goodbye to the server, for at most so long; also when cancelled. Ends waits in other tasks."""
        self._closed = True
        self._coming_back.cancel()
        await self._keeper.close(limit_s)
        if self._receiving is not None:
            self._receiving.cancel()  # under trio a connection that is cut wakes nobody

    async def open(self) -> None:
        """Configure the session; returns when the server has accepted the settings."""
        with suppress(SessionClosedError):  # it says why in what is still to be read
            await self._send(self._core.opening)
        begun = anyio.current_time()
        while not self._core.ready:
            await self._receive()
            if anyio.current_time() - begun > self._timeout_s:  # other events keep coming
                self._core.check_silence(self._timeout_s)

    async def _receive(self) -> list[Event]:
        """Events of the next frame; none if nothing came in time, or another connection was needed.

        Raises LeftError once we have closed it.
        """
        if self._receiving is not None:
            raise SDKError(TWO_READERS)
        socket = self._socket
        frame = None
        try:
            with anyio.move_on_after(self._timeout_s) as self._receiving:
                frame = await socket.recv()
        except ConnectionClosed as error:
            async with self._sending:
                await self._resume(socket, error)
            return []
        finally:
            self._receiving = None
        if frame is not None:
            return self._core.receive(frame)
        if self._closed:
            raise LeftError
        self._core.check_silence(self._timeout_s)
        return []

    async def _send(self, make_frames: Callable[[], Sequence[str | bytes]]) -> int:
        """Send what the core makes, all of it or, if this is cancelled before, nothing; how many frames."""
        async with self._sending:
            await self._wait_for_written()
            if frames := make_frames():
                await self._write(frames)
        return len(frames)

    async def _send_chunk(self, chunk: AudioChunk) -> None:
        """Send audio; cancelling this loses the frames that have not begun."""
        async with self._sending:
            await self._wait_for_written()
            for frame in self._core.append(chunk):
                await self._write([frame])

    async def _wait_for_written(self) -> None:
        """Frames of a call that was cancelled go first. Raises LeftError once we have closed the session."""
        if self._written is not None:
            await self._written.done.wait()
        if self._closed:
            raise LeftError

    async def _write(self, frames: Sequence[str | bytes]) -> None:
        for frame in frames:
            self._core.sent(frame)
        self._written = written = _Written(self._socket)
        self._tasks.start_soon(written.write, frames)
        await written.done.wait()
        if isinstance(written.error, ConnectionClosed):
            await self._resume(written.socket, written.error)  # which sends the frames, too
        elif written.error is not None:
            raise written.error

    async def _resume(self, lost: Socket, error: ConnectionClosed) -> None:
        """Go on with another connection in place of `lost`; nobody sends meanwhile.

        Raises SessionClosedError for `error` if that cannot be, LeftError once we have closed it. Cancelling
        it does not put off the end of the grace.
        """
        if self._socket is not lost:
            return  # the other task has done it
        if self._core.can_resume(error) and not self._closed and await self._reconnect():
            return
        if self._core.can_begin_again(error) and not self._closed and await self._begin_again():
            return
        self._core.resumption.forgo()
        if self._closed:
            raise LeftError from None
        raise self._core.closed(error) from error

    async def _reconnect(self) -> bool:
        """Whether an attempt was successful."""
        resumption = self._core.resumption
        give_up_at, pauses = resumption.attempts(anyio.current_time())
        with anyio.CancelScope(deadline=give_up_at) as self._coming_back:
            for wait_s in pauses:
                await anyio.sleep(wait_s)
                keeper = _Keeper(self._connect)
                try:
                    await self._tasks.start(keeper.run, CONNECT_TIMEOUT_S)
                    with anyio.fail_after(CONNECT_TIMEOUT_S):
                        resumed = await self._request_resume(keeper.socket)
                except ATTEMPT_ERRORS as error:
                    resumption.failed(error)
                else:
                    resumption.succeeded()
                    self._keeper, keeper = keeper, self._keeper
                    self._pending.append(resumed)
                    return True
                finally:
                    keeper.drop()  # the one that was lost, or could not be used
        return False

    async def _begin_again(self) -> bool:
        """Whether another session goes on, with what this one has not answered."""
        with anyio.CancelScope() as self._coming_back:
            for wait_s in waits(self._core.resumption.grace_s):
                await anyio.sleep(wait_s)
                keeper = _Keeper(self._connect)
                try:
                    await self._tasks.start(keeper.run, CONNECT_TIMEOUT_S)
                    with anyio.fail_after(CONNECT_TIMEOUT_S):
                        created = greeting(await keeper.socket.recv())
                    for frame in self._core.begin_again(created):
                        await keeper.socket.send(frame)
                except ATTEMPT_ERRORS:
                    continue
                else:
                    self._keeper, keeper = keeper, self._keeper
                    self._pending.append(self._core.begun_again())
                    return True
                finally:
                    keeper.drop()  # the one whose session has ended, or that could not be used
        return False

    async def _request_resume(self, socket: Socket) -> Event:
        """The answer of the server, once everything that was lost was sent again."""
        await socket.send(self._core.resumption.resume_frame())
        while True:
            event = decode_server_event(await socket.recv())
            frames = self._core.resumption.answer(event)
            if frames is not None:
                break
        for frame in frames:
            await socket.send(frame)
        return event


class _Written:
    """Frames on their way, in a task of its own: cancelling the caller neither tears nor parts them, so that
    the server and we agree on what was sent.
    """

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.done = anyio.Event()
        self.error: ConnectionClosed | LeftError | None = LeftError()  # if it ends with the session

    async def write(self, frames: Sequence[str | bytes]) -> None:
        """Send them."""
        try:
            for frame in frames:
                await self.socket.send(frame)
            self.error = None
        except ConnectionClosed as error:
            self.error = error
        finally:
            self.done.set()


class _Keeper:
    """A task that holds one connection open, apart from those who use it: whatever cancels them, there is
    time for a goodbye.
    """

    def __init__(self, connect: OpenSocket) -> None:
        self._connect = connect
        self._done = anyio.Event()
        self._closed = anyio.Event()
        self._scope = anyio.CancelScope()
        self.socket: Socket

    async def run(self, limit_s: float, *, task_status: TaskStatus[None]) -> None:
        """Connect, and hold the connection until `close` or `drop`. Raises as connecting does."""
        try:
            with self._scope:
                async with self._connect(limit_s) as self.socket:
                    self._scope.shield = True
                    task_status.started()
                    await self._done.wait()
        finally:
            self._closed.set()

    async def close(self, limit_s: float) -> None:
        """The closing handshake, then the end; also when cancelled."""
        self._done.set()
        with anyio.move_on_after(limit_s, shield=True):
            await self._closed.wait()
        self.drop()

    def drop(self) -> None:
        """Cut the connection without a goodbye: the server keeps the session."""
        self._scope.cancel()
