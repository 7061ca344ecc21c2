"""A session that transcribes, for synchronous code: send audio from any thread, iterate typed events in one.

Logic is in `client/realtime/transcription_machine.py`; frames are moved by `client/realtime/socket.py`. Read
next: `client/realtime/async_transcription.py`, the same for tasks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

from ..errors import SDKError, SessionClosedError
from .events import Event
from .machine import AudioChunk, LeftError
from .socket import Connect, LiveShell
from .transcription_machine import SessionCore


class RealtimeSession(LiveShell):
    """An open live session; made by `Client.realtime`.

    Iterating yields events as they arrive and stops once `finish` was called and every turn is answered. It
    raises SessionClosedError if the server closes first, and SensoriumTimeoutError if after `finish` nothing
    arrives for the client's timeout.
    """

    def __init__(self, core: SessionCore, *, timeout_s: float, connect: Connect) -> None:
        super().__init__(core, timeout_s=timeout_s, connect=connect)
        self._core: SessionCore = core

    def send(self, chunk: AudioChunk) -> None:
        """Send audio in the session's format. Blocks while the server does not keep up with the socket.

        Bytes, or int16 for pcm16; raises TypeError for other numbers, as float32.
        """
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
        self._core.check_chunks(chunks)
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

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while not self._pending:
            if self._core.finished:
                raise StopIteration
            if self._core.needs_fence:
                self._send(self._core.clear)
            try:
                self._pending.extend(self._receive())
            except LeftError:
                raise StopIteration from None
        return self._pending.popleft()


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
