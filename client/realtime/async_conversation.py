"""A session that answers, for asynchronous code, under asyncio and trio alike.

Logic is in `client/realtime/conversation_machine.py`; frames are moved by `client/realtime/async_socket.py`.
A task of its own reads what the server says. Read next: `client/async_client.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Self, TypeVar, Unpack
from weakref import WeakSet

import anyio
from anyio.abc import TaskGroup

from ..errors import SensoriumTimeoutError
from ..pictures import Picture, picture_file
from .answer import AnswerLog, AnswerState, EventQueue
from .async_socket import AsyncLiveShell, OpenSocket
from .conversation_machine import DialogueCore, ResponseOptions, new_answer, new_id
from .events import AnswerBegan, Event
from .machine import AudioChunk, LeftError

T = TypeVar("T")


class AsyncDialogueSession(AsyncLiveShell):
    """An open session that answers; made by `AsyncClient.realtime(type="realtime")`.

    Everything raises SessionClosedError once the server has ended the session. A connection that is lost is
    opened again, and nothing is missing or repeated. Cancelling a wait loses nothing, nor takes it back a
    question that is being asked: `interrupt` does.
    """

    def __init__(
        self, core: DialogueCore, tasks: TaskGroup, *, timeout_s: float, connect: OpenSocket
    ) -> None:
        super().__init__(core, tasks, timeout_s=timeout_s, connect=connect)
        self._core: DialogueCore = core
        self._news = anyio.Event()
        self._readers = WeakSet[EventQueue[Any]]()
        self._error: Exception | None = None

    @property
    def max_fps(self) -> float:
        """Live frames of a second that the server takes. Raises PictureError if it takes none."""
        return self._core.max_fps

    async def send_frame(self, picture: Picture, timestamp_ms: int | None = None) -> bool:
        """Show a frame, as `DialogueSession.send_frame`."""
        data = await anyio.to_thread.run_sync(picture_file, picture)
        wait_s = self._core.seconds_ahead(timestamp_ms, now=anyio.current_time())
        await anyio.sleep(wait_s)
        made = await self._send(lambda: self._core.frame(data, timestamp_ms, now=anyio.current_time()))
        return made > 0

    async def send_audio(self, chunk: AudioChunk) -> None:
        """Speak: audio in the session's format. The server answers a turn when it ends."""
        await self._send_chunk(chunk)

    async def commit(self) -> None:
        """End the spoken turn now (needed with `turn_detection=None`); then `ask()` for an answer."""
        await self._send(self._core.commit)

    async def clear(self) -> None:
        """Discard the audio of the current turn."""
        await self._send(self._core.clear)

    async def ask(
        self,
        text: str | None = None,
        *,
        pictures: Sequence[Picture] = (),
        **response: Unpack[ResponseOptions],
    ) -> AsyncAnswer:
        """Ask about what was said and shown so far, as `DialogueSession.ask`."""
        files, log = await _picture_files(pictures), new_answer()
        await self._send(lambda: self._core.ask(log, text, files, **response))
        return AsyncAnswer(self, log)

    async def add(self, text: str, *, role: str = "user", pictures: Sequence[Picture] = ()) -> str:
        """Put a message in the conversation without asking, as `DialogueSession.add`."""
        files, item_id = await _picture_files(pictures), new_id("item")
        await self._send(lambda: self._core.add(item_id, text, files, role))
        return item_id

    async def give(self, call_id: str, output: str) -> None:
        """Tell what a call of the model's gave (`Answer.calls`); `ask()` has it go on."""
        await self._send(lambda: self._core.give(call_id, output))

    async def interrupt(self) -> None:
        """End the answers in progress; what was said of them stays in the conversation."""
        await self._send(self._core.interrupt)

    def answers(self) -> AsyncIterator[AsyncAnswer]:
        """Every answer as it begins from now on, whoever asked for it: `ask`, or a spoken turn. Ends with
        the session."""

        def begun(event: Event) -> AsyncAnswer | None:
            log = self._core.running(event.response.id) if isinstance(event, AnswerBegan) else None
            return None if log is None else AsyncAnswer(self, log)

        return _Queue(self, begun)

    def events(self) -> AsyncIterator[Event]:
        """Every event from now on, as typed structs. Ends with the session.

        Raises SDKError where more than 1024 of them wait.
        """
        return _Queue(self, lambda event: event)

    async def open(self) -> None:
        """Configure the session; returns when the server has accepted the settings."""
        await super().open()
        self._tasks.start_soon(self._read)

    async def _read(self) -> None:
        try:
            while True:
                events = await self._receive()
                events[:0] = [self._pending.popleft() for _ in range(len(self._pending))]
                for reader in tuple(self._readers):
                    for event in events:
                        reader.put(event)
                self._wake_readers()
        except Exception as error:  # (whoever waits gets it)
            self._error = error
        finally:
            self._error = self._error or LeftError()  # we are cancelled with the session
            self._wake_readers()

    def _wake_readers(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    async def _until(self, is_there: Callable[[], bool], *, forever: bool = False) -> None:
        """Wait. Raises what ended the session, SensoriumTimeoutError if nothing at all came for the client's
        timeout, unless `forever`."""
        while not is_there():
            if self._error is not None:
                raise self._error
            with anyio.move_on_after(None if forever else self._timeout_s) as scope:
                await self._news.wait()
            if scope.cancelled_caught:
                raise SensoriumTimeoutError(f"nothing came from the server for {self._timeout_s:g} s")


class AsyncAnswer(AnswerState):
    """An answer being made. Iterating yields its text as it comes, from its beginning on, every time."""

    def __init__(self, session: AsyncDialogueSession, log: AnswerLog) -> None:
        super().__init__(log)
        self._session = session

    async def __aiter__(self) -> AsyncIterator[str]:
        """Raises APIError if the question was refused or the answer failed; one that was interrupted ends."""
        log, num_read = self._log, 0
        while True:
            await self._session._until(partial(log.has_more, num_read))
            for piece in log.pieces[num_read:]:
                num_read += 1
                yield piece
            if log.is_over and num_read == len(log.pieces):
                break
        if log.error is not None:
            # Its question was refused.
            await self._session._send(partial(self._session._core.interrupt, log))
            raise log.error

    async def text(self) -> str:
        """All of it, once it is over. Raises as iterating does."""
        return "".join([piece async for piece in self])


class _Queue(EventQueue[T]):
    """Iterates them."""

    def __init__(self, session: AsyncDialogueSession, pick: Callable[[Event], T | None]) -> None:
        super().__init__(session._readers, pick)
        self._session = session

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            await self._session._until(self.has_more, forever=True)
        except LeftError:
            raise StopAsyncIteration from None
        return self.take()


async def _picture_files(pictures: Sequence[Picture]) -> list[bytes]:
    """Read and encoded in a thread."""
    if not pictures:
        return []
    return await anyio.to_thread.run_sync(lambda: [picture_file(each) for each in pictures])
