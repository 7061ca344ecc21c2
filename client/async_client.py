"""The asynchronous client, under asyncio and trio alike: `await AsyncClient().transcribe("talk.mp3")`.

Same methods as `client/client.py`, from the same requests. Read next:
`client/realtime/async_transcription.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import cached_property, partial
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import anyio
import httpx
from anyio.abc import TaskGroup

from ..protocols.transcription.transcript import Transcript
from .bounds import Deadline, LineSplitter, WholeBody
from .chat.requests import AsyncChat
from .connection import (
    CLOSE_TIMEOUT_S,
    PerProcess,
    Retries,
    http_arguments,
    noting,
    readable_connect_errors,
    readable_errors,
)
from .errors import APIError, SDKError
from .options import DEFAULT_MAX_RETRIES, client_options
from .realtime.async_conversation import AsyncDialogueSession
from .realtime.async_socket import CANCELLED_CLOSE_S, AsyncLiveShell, open_socket
from .realtime.async_transcription import AsyncRealtimeSession
from .realtime.conversation_machine import DialogueCore, DialogueOptions
from .realtime.transcription_machine import SessionCore, SessionOptions
from .requests import (
    HEALTH,
    METRICS,
    MODELS,
    VERSION,
    Call,
    Model,
    TextFormat,
    TranscriptFormat,
    TranscriptOptions,
    check_status,
    embedding,
    streamed_transcription,
    transcription,
)
from .server_events import StreamDecoder, TextEvent
from .upload import AudioFile, Part, open_part

T = TypeVar("T")
Shell = TypeVar("Shell", bound=AsyncLiveShell)


class AsyncClient:
    """Talks to one server. Usable from several tasks of one event loop; `close` it, or use it as a context
    manager. The arguments, and what methods raise, are those of `Client`.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        *,
        max_retries: int = DEFAULT_MAX_RETRIES,
        headers: Mapping[str, str] | None = None,
        http_client: httpx.AsyncClient | None = None,
        total_timeout: float | None = None,
    ) -> None:
        self.options = client_options(
            base_url,
            api_key,
            timeout,
            max_retries=max_retries,
            headers=headers,
            total_timeout=total_timeout,
        )
        self._owns_http = http_client is None
        make = partial(httpx.AsyncClient, **http_arguments(self.options))
        self._pool = PerProcess(make if http_client is None else lambda: http_client)

    @cached_property
    def chat(self) -> AsyncChat:
        """Asks a model and runs the functions it calls: `(await client.chat("Why?")).text`, or
        `client.chat.stream("Why?")` for the answer as it grows; see
        `sensorium.client.chat.requests.AsyncChat`.
        """
        return AsyncChat(self._lines)

    @overload
    async def transcribe(
        self,
        file: AudioFile,
        *,
        response_format: TranscriptFormat = "verbose_json",
        **options: Unpack[TranscriptOptions],
    ) -> Transcript: ...

    @overload
    async def transcribe(
        self, file: AudioFile, *, response_format: TextFormat, **options: Unpack[TranscriptOptions]
    ) -> str: ...

    async def transcribe(
        self,
        file: AudioFile,
        *,
        response_format: TranscriptFormat | TextFormat = "verbose_json",
        **options: Unpack[TranscriptOptions],
    ) -> Transcript | str:
        """The transcript of a whole file in any format the server can decode, as `Client.transcribe`."""
        return await self._send(transcription(file, response_format, **options))

    async def transcribe_stream(
        self, file: AudioFile, **options: Unpack[TranscriptOptions]
    ) -> AsyncGenerator[TextEvent]:
        """The text of a whole file piece by piece as it is transcribed, then once as a whole; with
        `timestamp_granularities` also each segment as soon as it is sure.

        Wrap it in `contextlib.aclosing` if you may leave the loop before its end. The options are those of
        `transcribe`.
        """
        decoder = StreamDecoder()
        async with aclosing(self._lines(streamed_transcription(file, **options))) as lines:
            async for line in lines:
                event = decoder.feed(line)
                if event is not None:
                    yield event
        decoder.end()

    async def translate(
        self,
        file: AudioFile,
        *,
        model: str | None = None,
        prompt: str | None = None,
        temperature: float | None = None,
    ) -> Transcript:
        """What is said in a file, in English, where the model can do that."""
        return await self.transcribe(
            file, task="translate", model=model, prompt=prompt, temperature=temperature
        )

    @overload
    def realtime(
        self, model: str | None = None, *, type: Literal["realtime"], **options: Unpack[DialogueOptions]
    ) -> AbstractAsyncContextManager[AsyncDialogueSession]: ...

    @overload
    def realtime(
        self,
        model: str | None = None,
        *,
        type: Literal["transcription"] = "transcription",
        **options: Unpack[SessionOptions],
    ) -> AbstractAsyncContextManager[AsyncRealtimeSession]: ...

    def realtime(
        self,
        model: str | None = None,
        *,
        type: Literal["realtime", "transcription"] = "transcription",  # noqa: A002 (as the wire has it)
        **options: Any,
    ) -> (
        AbstractAsyncContextManager[AsyncDialogueSession] | AbstractAsyncContextManager[AsyncRealtimeSession]
    ):
        """A live session, with the options of `Client.realtime`.

        Leaving the context discards what has not been answered.
        """
        url = self.options.realtime_url(model=model, intent=type)
        connect = partial(open_socket, url, self.options)
        timeout_s = self.options.timeout_s
        if type == "realtime":
            dialogue = DialogueCore(**options)
            return self._opened(
                lambda tasks: AsyncDialogueSession(dialogue, tasks, timeout_s=timeout_s, connect=connect)
            )
        core = SessionCore(model, **options)
        return self._opened(
            lambda tasks: AsyncRealtimeSession(core, tasks, timeout_s=timeout_s, connect=connect)
        )

    @asynccontextmanager
    async def _opened(self, make: Callable[[TaskGroup], Shell]) -> AsyncIterator[Shell]:
        raised: Exception | None = None
        async with anyio.create_task_group() as tasks:
            session = make(tasks)
            try:
                await self._tried(partial(self._connect, session))
                await session.open()
                yield session
                await session.close(CLOSE_TIMEOUT_S)
            except Exception as error:
                raised = error  # raised again outside the task group, which would wrap it in a group
            finally:
                await session.close(CANCELLED_CLOSE_S)
            tasks.cancel_scope.cancel()
        if raised is not None:
            raise raised

    async def _connect(self, session: AsyncLiveShell) -> None:
        with readable_connect_errors(self.options):
            await session.connect()

    async def embed(
        self, texts: str | Sequence[str], *, model: str | None = None, dimensions: int | None = None
    ) -> list[list[float]]:
        """See `Client.embed`."""
        return await self._send(embedding(texts, model, dimensions))

    async def models(self) -> list[Model]:
        """The models the server offers."""
        return await self._send(MODELS)

    async def health(self) -> bool:
        """True if the server is ready to serve. Raises SensoriumConnectionError if there is none."""
        try:
            await self._send(HEALTH)
        except APIError:
            return False
        return True

    async def version(self) -> str:
        """The version the server says it is."""
        return await self._send(VERSION)

    async def metrics(self) -> dict[str, float]:
        """The server's counters and gauges by name, summed over labels."""
        return await self._send(METRICS)

    async def close(self) -> None:
        """Close idle connections."""
        if self._owns_http:
            await self._pool.value.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _tried(self, attempt: Callable[[], Awaitable[T]], *, is_repeatable: bool = True) -> T:
        retries = Retries(self.options, is_repeatable=is_repeatable)
        while True:
            try:
                return await attempt()
            except SDKError as error:
                wait_s = retries.wait_s(error)
            await anyio.sleep(wait_s)

    async def _send(self, call: Call[T]) -> T:
        return await self._tried(partial(self._request_once, call), is_repeatable=call.is_repeatable)

    async def _request_once(self, call: Call[T]) -> T:
        deadline = Deadline(self.options)
        with readable_errors(self.options):
            async with _opened(call.file) as part, self._response(call, part, deadline) as response:
                with noting(response.headers):
                    return call.result(response.status_code, await _whole(response, deadline))

    async def _lines(self, call: Call[None]) -> AsyncGenerator[str]:
        """The lines of a streamed answer; what fails before the first may be sent again."""
        retries = Retries(self.options, is_repeatable=call.is_repeatable)
        while True:
            try:
                async with aclosing(self._lines_once(call)) as lines:
                    async for line in lines:
                        retries.may_repeat = False
                        yield line
                return
            except SDKError as error:
                wait_s = retries.wait_s(error)
            await anyio.sleep(wait_s)

    async def _lines_once(self, call: Call[None]) -> AsyncGenerator[str]:
        deadline = Deadline(self.options)
        with readable_errors(self.options):
            async with _opened(call.file) as part, self._response(call, part, deadline) as response:
                if not response.is_success:
                    with noting(response.headers):
                        check_status(response.status_code, await _whole(response, deadline))
                splitter = LineSplitter(response.status_code, response.headers.get("content-encoding"))
                pieces = response.aiter_bytes()
                while (piece := await _next(pieces, deadline)) is not None:
                    for line in splitter.feed(piece):
                        yield line
                for line in splitter.end():
                    yield line

    @asynccontextmanager
    async def _response(
        self, call: Call[Any], part: dict[str, Part] | None, deadline: Deadline
    ) -> AsyncIterator[httpx.Response]:
        """The answer, once its head came within the deadline."""
        async with AsyncExitStack() as stack:
            opening = self._pool.value.stream(**call.to_send(self.options, part))
            yield await _within(deadline, partial(stack.enter_async_context, opening))


async def _within(deadline: Deadline, work: Callable[[], Awaitable[T]]) -> T:
    """Raises SensoriumTimeoutError where the deadline passes before `work` is done."""
    with anyio.move_on_after(deadline.left_s()):
        return await work()
    raise deadline.error()


async def _next(pieces: AsyncIterator[bytes], deadline: Deadline) -> bytes | None:
    return await _within(deadline, lambda: anext(pieces, None))


async def _whole(response: httpx.Response, deadline: Deadline) -> bytes:
    body = WholeBody(response.status_code, response.headers.get("content-encoding"))
    deadline.answer_begins()
    pieces = response.aiter_bytes()
    while (piece := await _next(pieces, deadline)) is not None and body.add(piece):
        pass
    return body.data()


@asynccontextmanager
async def _opened(file: AudioFile | None) -> AsyncIterator[dict[str, Part] | None]:
    """As `open_part`, in a thread: a pipe is read, and may take its time."""
    opening = open_part(file)
    part = await anyio.to_thread.run_sync(opening.__enter__, abandon_on_cancel=True)
    try:
        yield part
    finally:
        opening.__exit__(None, None, None)
