"""Turns sampled tokens into text for whoever waits for it, without ever waiting for them.

Owns one `engine/text/detokenizer.py` per open stream, and ends requests at their stop strings. A reader so
slow that its stream's buffer is full loses its own request (an overrun), never a step of the engine. Read
`actors/inference/engine.py` for who opens streams.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NewType, Self

import msgspec
import trio

from ...engine.text.detokenizer import Collected, Detokenizer
from ...engine.text.text_decoder import TextDecoder
from ...protocols.engine.messages import RequestId, SamplingParams, TextGenerated, TokensSampled
from ...protocols.errors import InternalError
from ..runtime.actor import Handle, Inbox
from ..runtime.panic_guard import contained
from .streams import STREAM_CAPACITY, EventStream

logger = logging.getLogger(__name__)

StreamId = NewType("StreamId", int)
"""Unlike a request id never used again, so that late tokens cannot reach the id's next user."""

INBOX_CAPACITY: Final = 4096
"""Streams that may be opened in one turn of the loop."""
_IN_A_TURN: Final = 256
"""Messages taken one after the other before others have the loop: some 10 µs each."""


class TextReader(ABC):
    """The `Run` of a request that samples: iterate, or `receive` until `trio.EndOfChannel`."""

    is_finished: bool = False
    """Its end is known; there may be something left to receive."""

    @abstractmethod
    async def receive(self) -> TextGenerated:
        """The next text; the last has a finish reason."""

    async def outcome(self) -> TextGenerated:
        """All that was not received yet, in one message."""
        collected, texts = Collected(), list[str]()
        while True:
            text = await self.receive()
            if text.finish_reason is not None and not texts:
                return text
            collected.add(text)
            texts.append(text.text)
            if text.finish_reason is not None:
                return msgspec.structs.replace(collected.joined(text), text="".join(texts))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TextGenerated:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None


class TextStream(EventStream[TextGenerated], TextReader):
    """The text of one request as it comes.

    The last message has a finish reason. Those before it bring at least `stride` tokens each; None: there are
    none, and the last has everything in it. If the request fails alone, the reason is "error" and there is a
    message.
    """

    def __init__(
        self, request_id: RequestId, *, stride: int | None = 1, capacity: int = STREAM_CAPACITY
    ) -> None:
        super().__init__(request_id, capacity=capacity)
        self.stride = stride
        self.is_enough = False
        """Set by the reader: what came is an answer, though it did not end by itself."""

    def is_last(self, event: TextGenerated) -> bool:
        """See `EventStream.is_last`."""
        return event.finish_reason is not None

    def overrun(self) -> TextGenerated:
        """See `EventStream.overrun`."""
        return TextGenerated(
            self.request_id,
            (),
            finish_reason="error",
            error=f"the reader fell {self._capacity} messages behind",
            fault="slow_reader",
        )


@dataclass(slots=True)
class _Opened:
    """An open stream."""

    stream: TextStream
    detokenizer: Detokenizer
    has_stops: bool


@dataclass(slots=True)
class _Gathering(_Opened):
    """One whose reader gets many tokens in one message: until then their text is not made, unless something
    in it may end the request."""

    collected: Collected = field(default_factory=Collected)
    texts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Open:
    stream_id: StreamId
    stream: TextStream
    sampling: SamplingParams | None


@dataclass(frozen=True, slots=True)
class _Decode:
    tokens: Sequence[tuple[StreamId, TokensSampled]]


@dataclass(frozen=True, slots=True)
class _Close:
    stream_id: StreamId


_Message = _Open | _Decode | _Close


class DetokenizerHandle:
    """What others may ask of the detokenizer."""

    def __init__(self, handle: Handle[_Message]) -> None:
        self._handle = handle

    def open(self, stream_id: StreamId, stream: TextStream, sampling: SamplingParams | None = None) -> None:
        """Give `stream` the text of what is decoded under `stream_id`, up to a stop string of `sampling`."""
        self._handle.send_nowait(_Open(stream_id, stream, sampling))

    def decode(self, tokens: Sequence[tuple[StreamId, TokensSampled]]) -> None:
        """Tokens of one step. Streams that are not open (any more) are skipped."""
        self._handle.follow_up(_Decode(tokens))

    def close(self, stream_id: StreamId) -> None:
        """Forget a stream, finished or not."""
        self._handle.follow_up(_Close(stream_id))


class DetokenizerActor:
    """One task that owns the incremental decoders of all open streams.

    `stop` ends a request whose text met a stop string, `abort` one whose reader is too slow.
    """

    def __init__(
        self,
        *,
        make_decoder: Callable[[], TextDecoder],
        abort: Callable[[RequestId, StreamId], None],
        stop: Callable[[RequestId, StreamId], None],
    ) -> None:
        self.inbox: Inbox[_Message] = Inbox("detokenizer", INBOX_CAPACITY)
        self.handle = DetokenizerHandle(Handle(self.inbox))
        self._make_decoder = make_decoder
        self._abort = abort
        self._stop = stop
        self._streams: dict[StreamId, _Opened] = {}

    @property
    def num_streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Decode until cancelled."""
        with self.inbox:
            task_status.started()
            while True:
                first = await self.inbox.receive()
                # One a turn of the loop, text would wait behind all streams that are opened and closed.
                for number, message in enumerate((first, *self.inbox.take_all()), 1):
                    self._handle_message(message)
                    if number % _IN_A_TURN == 0:
                        await trio.lowlevel.checkpoint()

    def _handle_message(self, message: _Message) -> None:
        match message:
            case _Decode(tokens):
                for stream_id, sampled in tokens:
                    self._give(stream_id, sampled)
            case _Open(stream_id, stream, sampling):
                make = _Opened if stream.stride == 1 else _Gathering
                detokenizer = Detokenizer(self._make_decoder(), sampling)
                self._streams[stream_id] = make(stream, detokenizer, bool(sampling and sampling.stop))
            case _Close(stream_id):
                self._streams.pop(stream_id, None)

    def _give(self, stream_id: StreamId, sampled: TokensSampled) -> None:
        opened = self._streams.get(stream_id)
        if opened is None:
            return
        stream = opened.stream
        try:
            with contained:
                text = _text_of(opened, sampled)
        except Exception:
            with stream.log_context.applied():
                logger.exception("%s: its tokens cannot be read, aborted", sampled.request_id)
            stream.fail(InternalError("The text of the answer could not be made."))
            self._abort(sampled.request_id, stream_id)
            del self._streams[stream_id]
            return
        if text is None:
            return
        if not stream.put_nowait(text):
            with stream.log_context.applied():
                logger.warning("%s: its reader lags too far behind, aborted", sampled.request_id)
            self._abort(sampled.request_id, stream_id)
        elif text.stop is not None and sampled.finish_reason is None:
            self._stop(sampled.request_id, stream_id)
        if stream.is_finished:
            del self._streams[stream_id]


def _text_of(opened: _Opened, sampled: TokensSampled) -> TextGenerated | None:
    """The next message of a stream, if `sampled` completes one."""
    if isinstance(opened, _Gathering):
        return _collect(opened, sampled)
    return opened.detokenizer.push(sampled)


def _collect(opened: _Gathering, sampled: TokensSampled) -> TextGenerated | None:
    """The next message of a stream that gathers tokens once `sampled` completes it, else None."""
    part = opened.detokenizer.push(sampled) if opened.has_stops else sampled
    collected = opened.collected
    collected.add(part)
    if isinstance(part, TextGenerated):
        opened.texts.append(part.text)
    stride = opened.stream.stride
    if part.finish_reason is None and (stride is None or len(collected.token_ids) < stride):
        return None
    gathered = collected.joined(part)
    opened.collected = Collected()
    if not isinstance(gathered, TextGenerated):
        return opened.detokenizer.push(gathered)
    text = "".join(opened.texts)
    opened.texts.clear()
    return msgspec.structs.replace(gathered, text=text)
