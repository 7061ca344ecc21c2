"""Answers as server-sent events while they are being made: frames, keep-alive comments, an error, [DONE].

The response owns the work: when the client leaves or does not read, the work is cancelled. Frames are made by
`protocols/`; this file knows none of them but comments and the last. Read next:
`actors/http/error_bodies.py`.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import trio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...protocols.shared.event_stream import DONE, KEEP_ALIVE
from ...protocols.transcription import rest
from ...protocols.transcription.form import TranscriptionRequest
from ...protocols.transcription.transcript import TimedSegment, Transcript
from ...protocols.transcription.vllm_chunks import ChunkFrames
from ..runtime.nursery import open_work
from ..runtime.off_loop import off_loop
from ..runtime.panic_guard import contained
from ..transport.http_exchange import HALF_CLOSED
from .error_bodies import ErrorShape, error_shape, shown

_KEEP_ALIVE_S: Final = 5.0
"""Silence on the line after which a comment is sent: shorter than any proxy's patience."""

SLICE_BYTES: Final = 64 * 1024

Put = Callable[[bytes], None]
"""Sends one frame. Never waits: what a client does not read is bounded by the longest answer."""


def put_any(put: Put, frames: bytes | None) -> None:
    """Put what there is to tell, if anything."""
    if frames:
        put(frames)


class EventStream(Response):
    """Does `work`, which puts frames, inside `hold`. The body ends with `data: [DONE]`, also after a failure.

    Nothing is sent before the first frame (or some seconds): work that fails until then is answered with its
    own status, as if it had not been a stream.
    """

    media_type = "text/event-stream"

    def __init__(
        self, work: Callable[[Put], Awaitable[None]], hold: Callable[[], AbstractContextManager[None]]
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._work = work
        self._hold = hold
        self._waiting: deque[bytes] = deque()
        self._wake = trio.Event()
        self._finished = False
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._hold():
            async with open_work() as nursery:
                nursery.start_soon(watch_for_disconnect, receive, nursery.cancel_scope, self._probe)
                nursery.start_soon(self._do_work, error_shape(scope))
                await self._write(send)
                nursery.cancel_scope.cancel()

    async def _write(self, send: Send) -> None:
        while not (self._finished and not self._waiting):
            with trio.move_on_after(_KEEP_ALIVE_S):
                await self._wake.wait()
            self._wake = trio.Event()
            body = self._some_frames() or KEEP_ALIVE
            if self._finished or self._waiting:
                self._wake.set()
            await self._send(send, body, more=True)
        await self._send(send, DONE, more=False)

    def _some_frames(self) -> bytes:
        """Frames that wait, some more than a slice at most: all at once may be very many."""
        frames: list[bytes] = []
        size = 0
        while self._waiting and size < SLICE_BYTES:
            frames.append(self._waiting.popleft())
            size += len(frames[-1])
        return b"".join(frames)

    async def _send(self, send: Send, body: bytes, *, more: bool) -> None:
        if not self._has_begun:
            self._has_begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _do_work(self, errors: ErrorShape) -> None:
        try:
            with contained:
                await self._work(self._put)
        except Exception as error:
            if not self._has_begun and not self._waiting:
                raise
            self._put(errors.event(shown(error, "a streamed answer")))
        self._finished = True
        self._wake.set()

    def _probe(self) -> None:
        if self._has_begun:
            self._put(KEEP_ALIVE)

    def _put(self, frame: bytes) -> None:
        self._waiting.append(frame)
        self._wake.set()


def transcript_stream(
    transcribe: Callable[
        [Callable[[str], None], Callable[[TimedSegment], None] | None], Awaitable[Transcript]
    ],
    form: TranscriptionRequest,
    hold: Callable[[], AbstractContextManager[None]],
    *,
    model: str,
) -> EventStream:
    """A transcript while `transcribe` makes it and says what is new: text, and segments if asked for."""
    delta: Callable[[str], bytes] = partial(rest.delta_event, has_logprobs=form.options.logprobs)
    done: Callable[[Transcript], bytes] = partial(rest.done_event, request=form)
    if form.dialect == "vllm":
        frames = ChunkFrames(
            form.options.task,
            model,
            unique=secrets.token_hex(12),
            created=int(time.time()),
            with_usage=form.include_usage,
        )
        delta, done = frames.delta, frames.done

    async def work(put: Put) -> None:
        def on_segment(segment: TimedSegment) -> None:
            put(rest.segment_event(segment))

        has_segments = form.response_format == "verbose_json"
        transcript = await transcribe(lambda text: put(delta(text)), on_segment if has_segments else None)
        render = partial(done, transcript)
        put(await off_loop(render, size=len(transcript.text)))

    return EventStream(work, hold)


class SlicedResponse(Response):
    """A body that is there already, sent a slice at a time: the server copies what it sends at once."""

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Send the response."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for at in range(0, len(self.body), SLICE_BYTES):
            part = self.body[at : at + SLICE_BYTES]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def watch_for_disconnect(
    receive: Receive, scope: trio.CancelScope, on_silence: Callable[[], None] = lambda: None
) -> None:
    """Cancel `scope` when the client leaves. The request's body must have been read.

    `on_silence` is called when it sends nothing more: it has left, too, if it does not take what it is sent.
    """
    while (message := await receive())["type"] != "http.disconnect":
        if message["type"] == HALF_CLOSED:
            on_silence()
    scope.cancel()


async def unless_gone(request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
    """Do the work, but drop it when the client leaves (ClientDisconnect)."""
    async with open_work() as nursery:
        nursery.start_soon(watch_for_disconnect, request.receive, nursery.cancel_scope)
        response = await work()
        nursery.cancel_scope.cancel()
        return response
    raise ClientDisconnect
