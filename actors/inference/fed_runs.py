"""Requests whose input arrives while they run, and what their callers have of them.

When a request loses its states its caller feeds all input again, and the engine gives every token again. With
`unanswered` a caller drops those that it has. Read `engine/planning/streaming_planner.py` for who loses
states, `actors/inference/client.py` for what a caller sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from ...protocols.engine.messages import (
    InputChunk,
    StateEvicted,
    Transduced,
    TransduceEvent,
    TransduceRequest,
)
from ...protocols.errors import InternalError, SensoriumError
from .client import FedRun
from .streams import EventStream


class TransduceStream(EventStream[TransduceEvent]):
    """What a fed request brings, as it comes. The last event has a finish reason."""

    def is_last(self, event: TransduceEvent) -> bool:
        """See `EventStream.is_last`."""
        return isinstance(event, Transduced) and event.finish_reason is not None

    def overrun(self) -> SensoriumError:
        """See `EventStream.overrun`."""
        return InternalError(
            f"The reader of the request was too slow: {self._capacity} messages wait, the most allowed."
        )


class FedReader(FedRun, ABC):
    """A fed request of a `stream`."""

    def __init__(self, stream: TransduceStream) -> None:
        self.stream = stream
        self._parts: list[Transduced] = []

    def __aiter__(self) -> AsyncIterator[TransduceEvent]:
        return self.stream

    async def outcome(self) -> TransduceEvent:
        """See `FedRun.outcome`."""
        while True:
            event = await self.stream.receive()
            if isinstance(event, StateEvicted):
                self._parts.clear()
                return event
            self._parts.append(event)
            if event.finish_reason is not None:
                return _joined(self._parts)

    @abstractmethod
    async def feed(self, chunk: InputChunk) -> None:
        """See `FedRun.feed`."""
        ...

    @abstractmethod
    def fork(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]:
        """See `FedRun.fork`."""
        ...


def unanswered(event: Transduced, num_frames: int) -> Transduced:
    """`event` for a caller that has the tokens of the first `num_frames`: without those."""
    start = bisect_left(event.frames, num_frames)
    if start == 0:
        return event
    return msgspec.structs.replace(
        event,
        token_ids=event.token_ids[start:],
        frames=event.frames[start:],
        logprobs=event.logprobs[start:],
        ends=event.ends[start:],
    )


def _joined(parts: Sequence[Transduced]) -> Transduced:
    return msgspec.structs.replace(
        parts[-1],
        token_ids=tuple(token_id for part in parts for token_id in part.token_ids),
        frames=tuple(frame for part in parts for frame in part.frames),
        logprobs=tuple(logprob for part in parts for logprob in part.logprobs),
        ends=tuple(end for part in parts for end in part.ends),
    )
