"""A session that answers, for synchronous code: show frames, speak, ask; answers come as they are written.

Logic is in `client/realtime/conversation_machine.py`; frames are moved by `client/realtime/socket.py`. A
thread of its own reads what the server says, so that one may show frames for hours and ask now and then. Read
next: `client/realtime/async_conversation.py`, the same for tasks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar, Unpack
from weakref import WeakSet

from ..errors import SensoriumTimeoutError
from ..pictures import Picture, picture_file
from .answer import AnswerLog, AnswerState, EventQueue
from .conversation_machine import DialogueCore, ResponseOptions, new_answer, new_id
from .events import AnswerBegan, Event
from .machine import AudioChunk, LeftError
from .socket import Connect, LiveShell

T = TypeVar("T")

_READER_END_S: Final = 2.0
"""How long `close` waits for the reading thread."""


class DialogueSession(LiveShell):
    """An open session that answers, for any number of threads; made by `Client.realtime(type="realtime")`.

    Everything raises SessionClosedError once the server has ended the session. A connection that is lost is
    opened again, and nothing is missing or repeated.
    """

    def __init__(self, core: DialogueCore, *, timeout_s: float, connect: Connect) -> None:
        super().__init__(core, timeout_s=timeout_s, connect=connect)
        self._core: DialogueCore = core
        self._news = threading.Condition()
        self._readers = WeakSet[EventQueue[Any]]()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    @property
    def max_fps(self) -> float:
        """Live frames of a second that the server takes. Raises PictureError if it takes none."""
        return self._core.max_fps

    def send_frame(self, picture: Picture, timestamp_ms: int | None = None) -> bool:
        """Show a frame of a camera or a screen; False if it was left out, for they come too fast.

        A path or bytes of a JPEG, PNG or WebP file, a PIL image, or an array of uint8. `timestamp_ms` is on
        any clock that grows; a film that is ahead of real time waits. Raises PictureError.
        """
        self.check_process()
        data, core = picture_file(picture), self._core
        with self._state:
            wait_s = core.seconds_ahead(timestamp_ms, now=time.monotonic())
        if wait_s:
            self._closed.wait(wait_s)
        return self._send(lambda: core.frame(data, timestamp_ms, now=time.monotonic())) > 0

    def send_audio(self, chunk: AudioChunk) -> None:
        """Speak: audio in the session's format. The server answers a turn when it ends."""
        self._send(lambda: self._core.append(chunk))

    def commit(self) -> None:
        """End the spoken turn now (needed with `turn_detection=None`); then `ask()` for an answer."""
        self._send(self._core.commit)

    def clear(self) -> None:
        """Discard the audio of the current turn."""
        self._send(self._core.clear)

    def ask(
        self,
        text: str | None = None,
        *,
        pictures: Sequence[Picture] = (),
        **response: Unpack[ResponseOptions],
    ) -> Answer:
        """Ask about what was said and shown so far; the answer comes as it is written.

        Without text and pictures: answer to what is there, as a turn that was committed. An answer that is in
        progress must end first, or be interrupted.
        """
        files = [picture_file(each) for each in pictures]
        log = new_answer()
        self._send(lambda: self._core.ask(log, text, files, **response))
        return Answer(self, log)

    def add(self, text: str, *, role: str = "user", pictures: Sequence[Picture] = ()) -> str:
        """Put a message (user, system or assistant) in the conversation without asking; its item's id."""
        files = [picture_file(each) for each in pictures]
        item_id = new_id("item")
        self._send(lambda: self._core.add(item_id, text, files, role))
        return item_id

    def give(self, call_id: str, output: str) -> None:
        """Tell what a call of the model's gave (`Answer.calls`); `ask()` has it go on."""
        self._send(lambda: self._core.give(call_id, output))

    def interrupt(self) -> None:
        """End the answers in progress; what was said of them stays in the conversation."""
        self._send(self._core.interrupt)

    def answers(self) -> Iterator[Answer]:
        """Every answer as it begins, whoever asked for it: `ask`, or a spoken turn. Ends with `close`."""

        def begun(event: Event) -> Answer | None:
            log = self._core.running(event.response.id) if isinstance(event, AnswerBegan) else None
            return None if log is None else Answer(self, log)

        return _Queue(self, begun)

    def events(self) -> Iterator[Event]:
        """Every event from now on, as typed structs. Ends with `close`.

        Raises SDKError where more than 1024 of them wait to be read.
        """
        return _Queue(self, lambda event: event)

    def open(self) -> None:
        """Configure the session; returns when the server has accepted the settings."""
        super().open()
        self._thread = threading.Thread(target=self._read, name="sensorium-reader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the connection; answers in progress are discarded. Ends iteration in other threads."""
        super().close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_READER_END_S)

    def _read(self) -> None:
        try:
            while True:
                events = self._receive()
                events[:0] = [self._pending.popleft() for _ in range(len(self._pending))]
                with self._news:
                    for reader in tuple(self._readers):
                        for event in events:
                            reader.put(event)
                    self._news.notify_all()
        except Exception as error:  # (whoever waits gets it)
            with self._news:
                self._error = error
                self._news.notify_all()

    def _until(self, is_there: Callable[[], bool], *, forever: bool = False) -> None:
        """Wait. Raises what ended the session, SensoriumTimeoutError if nothing at all came for the client's
        timeout, unless `forever`."""
        self.check_process()
        with self._news:
            while not is_there():
                if self._error is not None:
                    raise self._error
                if not self._news.wait(None if forever else self._timeout_s):
                    raise SensoriumTimeoutError(f"nothing came from the server for {self._timeout_s:g} s")


class Answer(AnswerState):
    """An answer being made. Iterating yields its text as it comes, from its beginning on, every time."""

    def __init__(self, session: DialogueSession, log: AnswerLog) -> None:
        super().__init__(log)
        self._session = session

    def __iter__(self) -> Iterator[str]:
        """Raises APIError if the question was refused or the answer failed; one that was interrupted ends."""
        log, num_read = self._log, 0
        while True:
            self._session._until(partial(log.has_more, num_read))
            for piece in log.pieces[num_read:]:
                num_read += 1
                yield piece
            if log.is_over and num_read == len(log.pieces):
                break
        if log.error is not None:
            self._session._send(partial(self._session._core.interrupt, log))  # its question was refused
            raise log.error

    def text(self) -> str:
        """All of it, once it is over. Raises as iterating does."""
        return "".join(self)


class _Queue(EventQueue[T]):
    """Iterates them. Used under the session's condition."""

    def __init__(self, session: DialogueSession, pick: Callable[[Event], T | None]) -> None:
        self._session = session
        session.check_process()
        with session._news:
            super().__init__(session._readers, pick)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            self._session._until(self.has_more, forever=True)
        except LeftError:
            raise StopIteration from None
        return self.take()
