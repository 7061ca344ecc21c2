"""The socket of a live session for synchronous code: frames out, events in, another connection after a
lost one.

Knows neither what is sent nor what it means: that is a `LiveCore`'s (`client/realtime/machine.py`). Sessions
on it are `client/realtime/transcription.py` (transcribing) and `client/realtime/conversation.py` (answering).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Final

from websockets.exceptions import ConcurrencyError, ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from ...protocols.realtime.codec import decode_server_event
from ..connection import CLOSE_TIMEOUT_S, OPEN_TIMEOUT_S, notice_loss, socket_arguments
from ..errors import SDKError, SessionClosedError
from ..options import ClientOptions
from .events import Event
from .machine import TWO_READERS, LeftError, LiveCore, SessionShell
from .resume import ATTEMPT_ERRORS, CONNECT_TIMEOUT_S, greeting, waits

Connect = Callable[[float], AbstractContextManager[ClientConnection]]
"""Connects, within a time limit in seconds."""


_FORKED: Final = (
    "this process was forked after the live session was opened, and a session works only in the process that "
    "opened it: open one after the fork (in gunicorn: in a worker; in multiprocessing: in the child)"
)


def open_connection(url: str, options: ClientOptions, limit_s: float) -> ClientConnection:
    """websockets' threading client. Raises OSError and WebSocketException."""
    connection: ClientConnection = connect(url, **socket_arguments(options, limit_s))
    notice_loss(connection.socket)
    return connection


class LiveShell(SessionShell):
    """An open live session. Sending and receiving may happen in different threads.

    A connection that is lost is opened again by `connect`, for as long as the server's grace allows; sending
    and receiving wait meanwhile. A `Resumed` event tells of it.
    """

    def __init__(self, core: LiveCore, *, timeout_s: float, connect: Connect) -> None:
        super().__init__(core)
        self._timeout_s = timeout_s
        self._connect = connect  # with its time limit
        self._connection: ClientConnection
        self._own = ExitStack()  # holds the connection open
        self._state = threading.Lock()  # around the core, never held while the socket blocks
        self._sending = threading.Lock()  # keeps the frames of one call together
        self._pending: deque[Event] = deque()
        self._closed = threading.Event()
        self._pid = os.getpid()

    def connect(self) -> None:
        """Open the first connection. Raises OSError and WebSocketException."""
        self._connection = self._own.enter_context(self._connect(OPEN_TIMEOUT_S))

    def open(self) -> None:
        """Configure the session; returns when the server has accepted the settings."""
        with suppress(SessionClosedError):  # it says why in what is still to be read
            self._send(self._core.opening)
        begun = time.monotonic()
        while not self._core.ready:
            self._receive()
            if time.monotonic() - begun > self._timeout_s:  # other events keep coming
                self._core.check_silence(self._timeout_s)

    def close(self) -> None:
        """Close the connection; what has not been answered is discarded. Ends iteration in other threads."""
        if self._is_forked:  # the session is the parent's, and a closing frame would end it there
            return
        self._closed.set()
        if self._sending.acquire(timeout=CLOSE_TIMEOUT_S):
            self._sending.release()  # nobody begins to send any more
        else:
            with suppress(OSError):  # what another thread sends is not read: it would hold the goodbye up
                self._connection.socket.shutdown(socket.SHUT_RDWR)
        self._own.close()

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raises SDKError in a forked child, where no thread reads the socket: a wait would have no end."""
        if self._is_forked:
            raise SDKError(_FORKED)

    def _receive(self) -> list[Event]:
        """Events of the next frame; none if nothing came in time, or another connection was needed.

        Raises LeftError once we have closed it.
        """
        self.check_process()
        connection = self._connection
        try:
            frame = connection.recv(timeout=self._timeout_s)
        except TimeoutError:
            self._core.check_silence(self._timeout_s)
            return []
        except ConcurrencyError:
            raise SDKError(TWO_READERS) from None
        except ConnectionClosed as error:
            with self._sending:
                self._resume(connection, error)
            return []
        with self._state:
            return self._core.receive(frame)

    def _send(self, make_frames: Callable[[], Iterable[str | bytes]]) -> int:
        """Send what the core makes, in one piece; how many frames it was. Raises LeftError once we have
        closed the session."""
        self.check_process()
        with self._sending:
            if self._closed.is_set():
                raise LeftError
            with self._state:
                frames = list(make_frames())
            for frame in frames:
                connection = self._connection
                self._core.sent(frame)
                try:
                    connection.send(frame)
                except ConnectionClosed as error:
                    self._resume(connection, error)  # which sends the frame, too
            return len(frames)

    def _resume(self, lost: ClientConnection, error: ConnectionClosed) -> None:
        """Go on with another connection in place of `lost`; nobody sends meanwhile.

        Raises SessionClosedError for `error` if that cannot be, LeftError once we have closed it.
        """
        if self._connection is not lost:
            return  # the other thread has done it
        resumption = self._core.resumption
        if self._core.can_resume(error) and not self._closed.is_set():
            give_up_at, pauses = resumption.attempts(time.monotonic())
            for wait_s in pauses:
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
        if self._core.can_begin_again(error) and self._begin_again():
            return
        resumption.forgo()
        if self._closed.is_set():
            raise LeftError from None
        raise self._core.closed(error) from error

    def _begin_again(self) -> bool:
        """Whether another session goes on, with what this one has not answered."""
        for wait_s in waits(self._core.resumption.grace_s):
            if self._closed.wait(wait_s):
                break
            try:
                self._connection = self._open_another()
            except ATTEMPT_ERRORS:
                continue
            self._pending.append(self._core.begun_again())
            if self._closed.is_set():  # meanwhile, by another thread
                self._own.close()
            return True
        return False

    def _open_another(self) -> ClientConnection:
        """A connection with another session, everything without an answer sent to it."""
        with ExitStack() as stack:
            connection = stack.enter_context(self._connect(CONNECT_TIMEOUT_S))
            created = greeting(connection.recv(timeout=CONNECT_TIMEOUT_S))
            with self._state:
                frames = self._core.begin_again(created)
            for frame in frames:
                connection.send(frame)
            self._own.close()
            self._own = stack.pop_all()
        return connection

    def _reconnect(self, limit_s: float) -> ClientConnection:
        """A connection that goes on with the session, everything that was lost sent again.

        No single step of it takes longer than `limit_s`.
        """
        with ExitStack() as stack:
            connection = stack.enter_context(self._connect(limit_s))
            connection.send(self._core.resumption.resume_frame())
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
