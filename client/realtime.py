"""A live session for synchronous code: send audio from any thread, iterate typed events in one.

Logic is in `client/session_core.py`; this file moves frames between it and websockets' threading client.
Read next: `client/async_realtime.py`, the same for tasks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from ..protocols.codec import decode_server_event
from .connection import OPEN_TIMEOUT_S, notice_loss, socket_arguments
from .errors import SDKError, SessionClosedError
from .events import Event
from .options import ClientOptions
from .resume import ATTEMPT_ERRORS, CONNECT_TIMEOUT_S
from .session_core import AudioChunk, SessionCore, SessionShell


@contextmanager
def open_connection(url: str, options: ClientOptions, limit_s: float) -> Iterator[ClientConnection]:
    """websockets' threading client. Raises OSError and WebSocketException."""
    with connect(url, **socket_arguments(options, limit_s)) as connection:
        notice_loss(connection.socket)
        yield connection


class RealtimeSession(SessionShell):
    """An open live session; made by `Client.realtime`.

    Iterating yields events as they arrive and stops once `finish` was called and every turn is answered. It
    raises SessionClosedError if the server closes first, and SensoriumTimeoutError if after `finish` nothing
    arrives for the client's timeout. Sending and iterating may happen in different threads.

    A connection that is lost is opened again by `connect`, for as long as the server's grace allows; sending
    and iterating wait meanwhile. A `Resumed` event tells of it.
    """

    def __init__(
        self,
        core: SessionCore,
        *,
        timeout_s: float,
        connect: Callable[[float], AbstractContextManager[ClientConnection]],
    ) -> None:
        super().__init__(core)
        self._timeout_s = timeout_s
        self._connect = connect  # with its time limit
        self._connection: ClientConnection
        self._own = ExitStack()  # holds the connection open
        self._state = threading.Lock()  # around the core, never held while the socket blocks
        self._sending = threading.Lock()  # keeps the frames of one call together
        self._pending: deque[Event] = deque()
        self._closed = threading.Event()

    def send(self, chunk: AudioChunk) -> None:
        """Send audio in the session's format. Blocks while the server does not keep up with the socket."""
        self._send(lambda: self._core.append(chunk))

    def commit(self) -> None:
        """End the current turn now (needed with `turn_detection=None`)."""
        self._send(self._core.commit)

    def flush(self) -> None:
        """Transcribe what was said so far without waiting for silence; a `Flushed` event answers."""
        self._send(self._core.flush)

    def clear(self) -> None:
        """Discard the audio of the current turn."""
        self._send(self._core.clear)

    def finish(self) -> None:
        """Say that no more audio comes: commits what is left; iteration ends after the last turn's answer."""
        self._send(self._core.finish)

    def transcribe(self, chunks: Iterable[AudioChunk], *, speed: float | None = None) -> Iterator[Event]:
        """Send all chunks from a background thread, finish, and yield the events meanwhile.

        `speed` 1.0 paces recorded audio like a live speaker; None sends chunks as they come, held back only
        so far that the server's backlog limit is not reached. An exception in `chunks` is raised here.
        Leaving the loop early stops the sending.
        """
        sender = _Sender(self, chunks, speed)
        self._core.begin()
        sender.start()
        try:
            yield from self
        except SDKError:
            if sender.error is None:
                raise
        finally:
            sender.stop()
        if sender.error is not None:
            raise sender.error

    def connect(self) -> None:
        """Open the first connection. Raises OSError and WebSocketException."""
        self._connection = self._own.enter_context(self._connect(OPEN_TIMEOUT_S))

    def open(self) -> None:
        """Configure the session; returns when the server has accepted the settings."""
        with suppress(SessionClosedError):  # it says why in what is still to be read
            self._send(self._core.opening)
        while not self._core.ready:
            self._receive()

    def close(self) -> None:
        """Close the connection; what has not been answered is discarded. Ends iteration in other threads."""
        self._closed.set()
        self._own.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while not self._pending:
            if self._core.finished:
                raise StopIteration
            self._pending.extend(self._receive())
        return self._pending.popleft()

    def _receive(self) -> list[Event]:
        connection = self._connection
        try:
            frame = connection.recv(timeout=self._timeout_s)
        except TimeoutError:
            self._core.check_silence(self._timeout_s)
            return []
        except ConnectionClosed as error:
            try:
                with self._sending:
                    self._resume(connection, error)
            except SessionClosedError:
                if self._closed.is_set():
                    raise StopIteration from None
                raise
            return []
        with self._state:
            return self._core.receive(frame)

    def _send(self, make_frames: Callable[[], Iterable[str | bytes]]) -> None:
        with self._sending:
            with self._state:
                frames = list(make_frames())
            for frame in frames:
                connection = self._connection
                self._core.resumption.sent(frame)
                try:
                    connection.send(frame)
                except ConnectionClosed as error:
                    self._resume(connection, error)  # which sends the frame, too

    def _resume(self, lost: ClientConnection, error: ConnectionClosed) -> None:
        """Go on with another connection in place of `lost`; nobody sends meanwhile.

        Raises SessionClosedError for `error` if that cannot be.
        """
        if self._connection is not lost:
            return  # the other thread has done it
        resumption = self._core.resumption
        if self._core.can_resume(error) and not self._closed.is_set():
            give_up_at, waits = resumption.attempts(time.monotonic())
            for wait_s in waits:
                if self._closed.wait(wait_s) or (left_s := give_up_at - time.monotonic()) <= 0:
                    break
                try:
                    self._connection = self._reconnect(min(CONNECT_TIMEOUT_S, left_s))
                except ATTEMPT_ERRORS as reason:
                    resumption.failed(reason)
                else:
                    resumption.succeeded()
                    if self._closed.is_set():  # meanwhile, by another thread
                        self._own.close()
                    return
            resumption.forgo()
        raise self._core.closed(error) from error

    def _reconnect(self, limit_s: float) -> ClientConnection:
        """A connection that goes on with the session, everything that was lost sent again.

        No single step of it takes longer than `limit_s`.
        """
        with ExitStack() as stack:
            connection = stack.enter_context(self._connect(limit_s))
            connection.send(self._core.resumption.wish())
            while True:
                event = decode_server_event(connection.recv(timeout=limit_s))
                frames = self._core.resumption.answer(event)
                if frames is not None:
                    break
            for frame in frames:
                connection.send(frame)
            self._own.close()
            self._own = stack.pop_all()
        self._pending.append(event)
        return connection


class _Sender(threading.Thread):
    """Sends an iterable's chunks at their pace, then finishes the session."""

    def __init__(self, session: RealtimeSession, chunks: Iterable[AudioChunk], speed: float | None) -> None:
        super().__init__(name="sensorium-sender", daemon=True)  # a blocked microphone must not hold the exit
        self._session = session
        self._chunks = chunks
        self._speed = speed
        self._stopped = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        session = self._session
        due = session._core.pacer(start=time.monotonic(), speed=self._speed)
        try:
            for chunk in self._chunks:
                if self._stopped.wait(max(0.0, due(chunk) - time.monotonic())):
                    return
                session.send(chunk)
            session.finish()
        except SessionClosedError:
            pass  # the iterating thread meets the same closed connection and raises there
        except BaseException as error:
            self.error = error
            session.close()  # wakes the iterating thread, which raises `error`

    def stop(self) -> None:
        """Send nothing more; waits a moment for a chunk that is just leaving."""
        self._stopped.set()
        self.join(timeout=0.5)
