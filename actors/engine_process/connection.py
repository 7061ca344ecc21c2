"""The connection to a process that runs engines: calls out, answers back to who asked.

Knows no engine; `actors/engine_process/client.py` asks through it. When it is lost everything in flight fails
at once. Read `actors/engine_process/server.py` for the other end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from itertools import count
from typing import Any, Final, TypeVar

import trio

from ...protocols.engine.messages import Features
from ...protocols.errors import OverloadedError, SensoriumError, TooLargeError, UnavailableError
from ..inference.streams import EventStream
from . import messages
from .chunking import read_message, send_message
from .framing import Buffer, FrameError
from .messages import Message
from .multiplexer import Link, LinkLostError

MessageT = TypeVar("MessageT", bound=Message)

MAX_CALLS: Final = 16_384
"""Calls in flight: more than engines take, and a bound while none answers."""
SILENCE_S: Final = 5.0
"""States come four times a second."""
_TICK_S: Final = 0.25


class Call:
    """One call in flight: its answers, but for the texts of a stream, in the order they came."""

    def __init__(self, link: Link, number: int, stream: EventStream[Any] | None) -> None:
        self.number = number
        self._link = link
        self._stream = stream
        self.is_over = False
        """Nothing is left of it at the other side."""
        self._is_given_up = False
        self._send, self._receive = trio.open_memory_channel[Message | SensoriumError](8)

    def take(self, answer: Message) -> None:
        """An answer has come."""
        if self._is_given_up:
            return
        match answer:
            case messages.Failed():
                self.fail(messages.raised(answer))
            case messages.Text(event) | messages.Brought(event) if self._stream is not None:
                self.is_over = self._stream.is_last(event)
                self._stream.put_nowait(event)
            case _:
                self.is_over = not isinstance(answer, messages.Accepted | messages.Missing)
                self._send.send_nowait(answer)

    def fail(self, error: SensoriumError) -> None:
        """There will be no more."""
        self.is_over = True
        if self._stream is not None:
            self._stream.fail(error)
        self._send.send_nowait(error)

    def give_up(self, error: SensoriumError) -> None:
        """Answers that still come are not for anybody; the other side is told so when the call is left."""
        is_over = self.is_over
        self.fail(error)
        self.is_over, self._is_given_up = is_over, True

    async def answer(self, *kinds: type[MessageT]) -> MessageT:
        """The next answer, which must be one of these. Raises what the call failed with."""
        answer = await self._receive.receive()
        if isinstance(answer, SensoriumError):
            raise copy(
                answer
            )  # it may be that of all calls, and a traceback holds the frames of who raised it
        assert isinstance(answer, kinds), f"{answer} is no answer here"
        return answer

    async def supply(self, features: Sequence[Features]) -> None:
        """Send what was missing, as soon as there is room for it."""
        supply, buffers = messages.shapes_of(features)
        await self._link.send(self.number, messages.encode(supply), buffers)


class Line:
    """The connection to one process, for all its models. Start `run`."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        on_news: Callable[[Message, Sequence[bytes]], None],
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        """`on_news` is told what comes without being asked for, with its buffers, and every state. After
        `silence_s` without a word nothing more is asked."""
        self._link = Link(stream)
        self._on_news = on_news
        self._silence_s = silence_s
        self._calls: dict[int, Call] = {}
        self._ids = count(messages.NEWS + 1)
        self.silent_s = 0.0
        """For how long nothing was heard, while we listened: a process that was stopped has not."""

    @property
    def is_silent(self) -> bool:
        """Whether nothing was heard for so long that nothing more is asked."""
        return self.silent_s >= self._silence_s

    async def run(self, on_lost: Callable[[], SensoriumError]) -> None:
        """Carry calls until the line is lost, which raises LinkLostError, or is cancelled.

        `on_lost` is told, and gives what becomes of the calls in flight.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._link.run_sending)
                nursery.start_soon(self._count_silence)
                await self._link.run_receiving(self._take)
        finally:
            error = on_lost()
            for call in tuple(self._calls.values()):
                call.fail(error)

    def give_up_calls(self, error: SensoriumError) -> None:
        """Fail all calls in flight, though the other side may still work on them: it is told to end them."""
        for call in tuple(self._calls.values()):
            call.give_up(error)

    @asynccontextmanager
    async def call(
        self, message: Message, stream: EventStream[Any] | None = None, buffers: Sequence[Buffer] = ()
    ) -> AsyncIterator[Call]:
        """Ask, and be there for the answers; leaving before the end ends it at the other side as well.

        `stream` gets texts, or what input brought. Raises OverloadedError for more than `MAX_CALLS`,
        TooLargeError for what no message holds, UnavailableError if the line is lost.
        """
        if len(self._calls) >= MAX_CALLS:
            raise OverloadedError(f"{MAX_CALLS} requests wait for the engine's process")
        number = next(self._ids)
        call = self._calls[number] = Call(self._link, number, stream)
        try:
            if buffers:
                await self._link.send(number, messages.encode(message), buffers)
            else:
                await send_message(self._link, number, message)
            yield call
        except LinkLostError as error:
            raise UnavailableError("the engine's process is gone; it is being restarted") from error
        except FrameError as error:
            raise TooLargeError(
                "The request and its media are too large for the engine's process."
            ) from error
        finally:
            del self._calls[number]
            if self._link.abandon(number) or not call.is_over:
                self._link.send_nowait(number, messages.encode(messages.Leave()))

    def send_nowait(self, message: Message) -> None:
        """Say something that needs no answer."""
        self._link.send_nowait(next(self._ids), messages.encode(message))

    async def _count_silence(self) -> None:
        while True:
            await trio.sleep(_TICK_S)
            self.silent_s += _TICK_S

    async def _take(self, number: int, parts: list[bytes]) -> None:
        self.silent_s = 0.0
        message, buffers = await read_message(parts)
        if number == messages.NEWS or isinstance(message, messages.State):
            self._on_news(message, buffers)
        if number in self._calls:
            self._calls[number].take(message)
