"""A session that transcribes, for asynchronous code, under asyncio and trio alike.

Logic is in `client/realtime/transcription_machine.py`; frames are moved by `client/realtime/async_socket.py`.
Read next: `client/async_client.py`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from ..errors import SDKError, SessionClosedError
from .async_socket import AsyncLiveShell, OpenSocket
from .events import Event
from .machine import AudioChunk, LeftError
from .transcription_machine import SessionCore

_POLL_S: Final = 0.2
"""How long a thread of the pool waits for a chunk at a time: the program's end waits for these."""
AudioChunks = AsyncIterable[AudioChunk] | Iterable[AudioChunk]


class AsyncRealtimeSession(AsyncLiveShell):
    """An open live session; made by `AsyncClient.realtime`.

    Iterating yields events as they arrive and stops once `finish` was called and every turn is answered. It
    raises SessionClosedError if the server closes first, and SensoriumTimeoutError if after `finish` nothing
    arrives for the client's timeout.
    """

    def __init__(self, core: SessionCore, tasks: TaskGroup, *, timeout_s: float, connect: OpenSocket) -> None:
        super().__init__(core, tasks, timeout_s=timeout_s, connect=connect)
        self._core: SessionCore = core

    async def send(self, chunk: AudioChunk) -> None:
        """Send audio in the session's format. Waits while the server does not keep up with the socket.

        Bytes, or int16 for pcm16; raises TypeError for other numbers, as float32.
        """
        await self._send_chunk(chunk)

    async def commit(self) -> None:
        """End the current turn now (needed with `turn_detection=None`)."""
        await self._send(self._core.commit)

    async def flush(self) -> None:
        """Transcribe what was said so far without waiting for silence; a `Flushed` event answers."""
        await self._send(self._core.flush)

    async def clear(self) -> None:
        """Discard the audio of the current turn."""
        await self._send(self._core.clear)

    async def finish(self) -> None:
        """Say that no more audio comes: commits what is left; iteration ends after the last turn's answer."""
        await self._send(self._core.finish)

    def transcribe(self, chunks: AudioChunks, *, speed: float | None = None) -> AsyncIterator[Event]:
        """Send all chunks from a background task, finish, and yield the events meanwhile.

        `chunks` may be an async iterable, or a plain one, which is read in a thread. `speed` 1.0 paces
        recorded audio like a live speaker; None sends chunks as they come, held back only so far that the
        server's backlog limit is not reached. An exception in `chunks` is raised by the iteration. If the
        loop is left early, sending goes on until the chunks or the session end.
        """
        self._core.check_chunks(chunks)
        return _Transcription(self, chunks, speed)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        return await self._next(self._receive)

    async def _next(self, receive: Callable[[], Awaitable[list[Event]]]) -> Event:
        while not self._pending:
            if self._core.finished:
                raise StopAsyncIteration
            if self._core.needs_fence:
                await self._send(self._core.clear)
            try:
                self._pending.extend(await receive())
            except LeftError:
                raise StopAsyncIteration from None
        return self._pending.popleft()


class _Transcription:
    """Iterates a session's events while a task sends an iterable's chunks at their pace."""

    def __init__(self, session: AsyncRealtimeSession, chunks: AudioChunks, speed: float | None) -> None:
        self._session = session
        self._chunks = chunks
        self._speed = speed
        self._started = False
        self._receiving = anyio.CancelScope()
        self._error: Exception | None = None

    def __aiter__(self) -> _Transcription:
        return self

    async def __anext__(self) -> Event:
        if not self._started:
            self._started = True
            self._session._core.begin()
            self._session._tasks.start_soon(self._send_all)
        try:
            return await self._session._next(self._receive)
        except StopAsyncIteration:
            if self._error is not None:
                raise self._error from None
            raise

    async def _receive(self) -> list[Event]:
        with anyio.CancelScope() as self._receiving:
            if self._error is not None:
                raise self._error
            try:
                return await self._session._receive()
            except SDKError:
                if self._error is None:
                    raise
        return []

    async def _send_all(self) -> None:
        session = self._session
        due = session._core.pacer(start=anyio.current_time(), speed=self._speed)
        try:
            async for chunk in _aiter(self._chunks):
                await anyio.sleep(max(0.0, due(chunk) - anyio.current_time()))
                await session.send(chunk)
            await session.finish()
        except SessionClosedError:
            pass  # the iterating task meets the same closed connection and raises there
        except Exception as error:
            self._error = error
            self._receiving.cancel()  # wakes the iterating task, which raises `error`


class _Chunks:
    """A plain iterable as an async one. It may wait for a microphone for ever, so it is asked in a daemon
    thread of its own, which the program's end does not wait for."""

    def __init__(self, chunks: Iterable[AudioChunk]) -> None:
        self._wanted = queue.SimpleQueue[bool]()
        self._read = queue.SimpleQueue[AudioChunk | BaseException]()
        arguments = iter(chunks), self._wanted, self._read
        threading.Thread(target=_read_wanted, args=arguments, daemon=True).start()

    def __del__(self) -> None:
        self._wanted.put(False)

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> AudioChunk:
        self._wanted.put(True)
        while True:
            try:
                found = await to_thread.run_sync(
                    partial(self._read.get, timeout=_POLL_S), abandon_on_cancel=True
                )
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found


def _read_wanted(
    chunks: Iterator[AudioChunk],
    wanted: queue.SimpleQueue[bool],
    read: queue.SimpleQueue[AudioChunk | BaseException],
) -> None:
    while wanted.get():
        try:
            read.put(next(chunks))
        except StopIteration:
            read.put(StopAsyncIteration())
        except BaseException as error:  # (raised where the chunk was wanted)
            read.put(error)


def _aiter(chunks: AudioChunks) -> AsyncIterable[AudioChunk]:
    return chunks if isinstance(chunks, AsyncIterable) else _Chunks(chunks)
