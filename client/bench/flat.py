"""A live session in vLLM's flat dialect, in the shape that `client/bench/realtime.py` drives.

Utterances become items: what the dialect says of an utterance is told as the events of our own dialect, so
that everything is measured by the same code. There is no turn detection: the caller commits. As vLLM wants
it, the next utterance is started when the last one is done.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self

import anyio
import msgspec
from websockets.exceptions import ConnectionClosed

from ...protocols.realtime.events import ErrorDetail
from ...protocols.realtime.vllm_events import FLAT_RATE
from ...protocols.transcription.view import DurationUsage
from ..connection import OPEN_TIMEOUT_S, close_details, readable_connect_errors
from ..errors import AudioError, SDKError, SensoriumTimeoutError, SessionClosedError
from ..options import MAX_QUEUED_EVENTS, ClientOptions
from ..realtime.async_socket import Socket, open_socket
from ..realtime.events import Committed, Completed, Delta, ErrorEvent, Event, Failed, SessionUpdated

_NO_USAGE: Final = DurationUsage(0.0)
_MARKER: Final = re.compile(r"language \w+<asr_text>")
_MARKER_BEGUN: Final = re.compile(r"\bl(?:a(?:n(?:g(?:u(?:a(?:g(?:e(?: \w*(?:<[a-z_]*)?)?)?)?)?)?)?)?)?$")


def spoken(text: str) -> str:
    """What a Qwen3-ASR answer says, without the markers of its language, which vLLM 0.32 sends along."""
    return _MARKER_BEGUN.sub("", _MARKER.sub("", text))


class _Frame(msgspec.Struct):
    """Any server event; other keys are ignored."""

    type: str
    delta: str = ""
    text: str = ""
    error: Any = None
    code: str | None = None


_decoder: Final = msgspec.json.Decoder(_Frame)


@asynccontextmanager
async def flat_session(
    options: ClientOptions, *, model: str | None, language: str | None, rate: int
) -> AsyncIterator[FlatSession]:
    """An open session of 16 kHz PCM16. Raises AudioError for another rate, SDKError if it cannot begin."""
    if rate != FLAT_RATE:
        raise AudioError(f"the dialect vllm takes {FLAT_RATE} samples per second, not {rate}")
    async with AsyncExitStack() as stack:
        with readable_connect_errors(options):
            url = options.realtime_url(intent=None)
            socket = await stack.enter_async_context(open_socket(url, options, OPEN_TIMEOUT_S))
        session = FlatSession(socket, options.timeout_s)
        stack.enter_context(session)
        await session.open(model, language)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(session.read)
        yield session
        tasks.cancel_scope.cancel()


class FlatSession:
    """Audio in, events out, until `finish` was called and everything is answered."""

    updated: SessionUpdated | None = None
    """The dialect does not tell the settings."""

    def __init__(self, socket: Socket, timeout_s: float) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        self._reported, self._events = anyio.create_memory_object_stream[Event](MAX_QUEUED_EVENTS)
        self._num_committed = 0
        self._num_answered = 0
        self._has_audio = False
        self._finishing = False
        self._last_error: str | None = None
        self._raw = ""
        self._num_shown = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._reported.close()
        self._events.close()

    async def open(self, model: str | None, language: str | None) -> None:
        """Greet, name the model, start the first utterance."""
        try:
            with anyio.fail_after(self._timeout_s):
                await self._socket.recv()
        except ConnectionClosed as error:
            raise self._closed(error) from error
        except TimeoutError:
            raise SensoriumTimeoutError("the server did not greet") from None
        session_options = {"language": language} if language else {}
        await self._send(type="session.update", model=model or "", **session_options)
        await self._send(type="input_audio_buffer.commit", final=False)

    async def send(self, chunk: bytes) -> None:
        """Append audio."""
        self._has_audio = True
        await self._send(type="input_audio_buffer.append", audio=base64.b64encode(chunk).decode())

    async def commit(self) -> None:
        """End the utterance."""
        self._has_audio = False
        self._num_committed += 1
        await self._reported.send(Committed(item_id=f"utterance_{self._num_committed}"))
        await self._send(type="input_audio_buffer.commit", final=True)

    async def finish(self) -> None:
        """End what is left, and the events once all is answered."""
        self._finishing = True
        if self._has_audio or not self._num_committed:
            await self.commit()
        elif self._num_answered == self._num_committed:
            self._reported.close()

    async def read(self) -> None:
        """Frames → events, until everything is answered."""
        try:
            while not (self._finishing and self._num_answered == self._num_committed):
                with anyio.fail_after(self._timeout_s if self._finishing else None):
                    await self._take(_decoder.decode(await self._socket.recv()))
        except ConnectionClosed as error:
            raise self._closed(error) from error
        except TimeoutError:
            raise SensoriumTimeoutError("the server did not answer the last utterance") from None
        except msgspec.DecodeError as error:
            raise SDKError(f"the server sent a malformed event: {error}") from error
        finally:
            self._reported.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def _take(self, frame: _Frame) -> None:
        item_id = f"utterance_{self._num_answered + 1}"
        match frame.type:
            case "transcription.delta":
                self._raw += frame.delta
                shown = spoken(self._raw)
                fresh, self._num_shown = shown[self._num_shown :], max(self._num_shown, len(shown))
                if fresh:
                    await self._reported.send(Delta(item_id=item_id, delta=fresh))
            case "transcription.done":
                transcript = _MARKER.sub("", frame.text)
                if rest := transcript[self._num_shown :]:
                    await self._reported.send(Delta(item_id=item_id, delta=rest))
                self._raw, self._num_shown = "", 0
                await self._answered(Completed(item_id=item_id, transcript=transcript, usage=_NO_USAGE))
            case "error":
                self._last_error = str(frame.error)
                problem = ErrorDetail(code=frame.code, message=self._last_error)
                await self._reported.send(ErrorEvent(error=problem))
                if self._num_answered < self._num_committed:
                    await self._answered(Failed(item_id=item_id, error=problem))
            case _:
                pass  # session.updated, …

    async def _answered(self, event: Completed | Failed) -> None:
        self._num_answered += 1
        await self._reported.send(event)
        if not self._finishing:
            await self._send(type="input_audio_buffer.commit", final=False)

    async def _send(self, **event: object) -> None:
        try:
            await self._socket.send(msgspec.json.encode(event).decode())
        except ConnectionClosed as error:
            raise self._closed(error) from error

    def _closed(self, error: ConnectionClosed) -> SessionClosedError:
        num_unfinished = self._num_committed - self._num_answered
        code, reason, by_us = close_details(error)
        return SessionClosedError(
            code, reason, num_unfinished=num_unfinished, last_error=self._last_error, by_us=by_us
        )
