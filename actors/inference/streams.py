"""The events of one request on their way to its reader, without a wait for their maker.

A reader that is so slow that the buffer is full loses its own request. What the events are is the business of
`actors/inference/detokenizer.py` (texts) and `actors/inference/fed_runs.py` (answers to input).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Final, Generic, Self, TypeVar

import trio

from ...protocols.engine.messages import RequestId
from ...protocols.errors import SensoriumError, UnavailableError
from ..telemetry.logs import log_context

EventT = TypeVar("EventT")

STREAM_CAPACITY: Final = 1024
"""Messages a reader may lag behind: more than any answer of one window has tokens."""


class EventStream(ABC, Generic[EventT]):
    """Events as they come: iterate, or `receive` until `trio.EndOfChannel`. One task reads.

    If the engine goes down, receiving raises UnavailableError after what is already there.
    """

    def __init__(self, request_id: RequestId, *, capacity: int = STREAM_CAPACITY) -> None:
        self.request_id = request_id
        self.log_context = log_context()
        """Of the task that opened it."""
        self.is_finished = False
        """Its end is known; there may be something left to receive."""
        self._capacity = capacity
        self._buffer: deque[EventT] = deque()
        self._reader: trio.lowlevel.Task | None = None
        self._error: SensoriumError | None = None

    @abstractmethod
    def is_last(self, event: EventT) -> bool:
        """Whether nothing follows it."""
        ...

    @abstractmethod
    def overrun(self) -> EventT | SensoriumError:
        """What a reader gets last that is `capacity` events behind."""
        ...

    async def receive(self) -> EventT:
        """The next event. Cancellation takes none."""
        # By hand, because this is the one place where a task is woken for each token of each request: a
        # third cheaper than a memory channel.
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._buffer:
            if self.is_finished:
                # A copy: the error is that of all streams, and a traceback holds the frames of who raised it.
                raise trio.EndOfChannel if self._error is None else copy(self._error)
            assert self._reader is None, "a stream has one reader"
            self._reader = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort_receive)
        return self._buffer.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventT:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def put_nowait(self, event: EventT) -> bool:
        """Give the reader `event`; False if it lags too far behind, which ends the stream with an error."""
        if self.is_finished:
            return True
        if len(self._buffer) >= self._capacity:
            last = self.overrun()
            if isinstance(last, SensoriumError):
                self._error = last
            else:
                self._buffer.append(last)
            self.is_finished = True
            return False
        self._buffer.append(event)
        self.is_finished = self.is_last(event)
        self._wake()
        return True

    def fail(self, error: SensoriumError) -> None:
        """End the stream: receiving raises `error` after what is already there."""
        if not self.is_finished:
            self._error = error
            self.is_finished = True
            self._wake()

    def raise_if_lost(self) -> None:
        """Raise what `receive` will, if the engine has gone down."""
        if isinstance(self._error, UnavailableError):
            raise copy(self._error)

    def _wake(self) -> None:
        if self._reader is not None:
            trio.lowlevel.reschedule(self._reader)
            self._reader = None

    def _abort_receive(self, _: Callable[[], object]) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED
