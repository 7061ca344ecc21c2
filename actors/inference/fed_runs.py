"""Requests whose input arrives while they run: what their callers have of them, and what each is given once.

When a request loses its states its caller feeds all input again, and the engine gives every token again: the
stream drops those of frames that were answered before. Read `engine/planning/streaming_planner.py` for who
loses states, `actors/inference/client.py` for what a caller sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec

from ...protocols.engine.messages import (
    InputChunk,
    RequestId,
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
        return InternalError(f"The reader of the request fell {self._capacity} messages behind.")


class FreshStream(TransduceStream):
    """One without what was given before.

    No token of a frame before `num_frames` is given: that is what the request has answered so far, and of a
    fork what its parent has answered of the input that they share.
    """

    def __init__(self, request_id: RequestId) -> None:
        super().__init__(request_id)
        self.num_frames = 0
        self._num_frames_now = 0
        """What is answered since the input began last, by the parent of a fork too."""
        self._awaits_first = False
        self._goes_on = False
        """Its input began with its parent's, and is not fed again."""
        self._num_fed = 0
        self._num_answered = 0
        self._forks: list[tuple[int, FreshStream]] = []
        """With the number of chunks that they share."""

    def fed(self, chunk: InputChunk) -> None:
        """The engine has taken a chunk."""
        if chunk.is_first:
            self._awaits_first = False
        if not self._awaits_first:
            self._num_fed += 1

    def forked(self, fork: FreshStream) -> None:
        """`fork` is of a request that goes on behind what was fed so far."""
        fork._goes_on = True
        fork.num_frames = fork._num_frames_now = self._num_frames_now
        if self._num_answered < self._num_fed:
            self._forks.append((self._num_fed, fork))

    def take(self, event: TransduceEvent) -> bool:
        """Give the reader what is new in `event`; False as `put_nowait` gives it."""
        if isinstance(event, StateEvicted):
            self._awaits_first, self._goes_on = True, False
            self._num_fed = self._num_answered = self._num_frames_now = 0
            self._forks.clear()
            return self.put_nowait(event)
        self._num_answered += 1
        self._num_frames_now = event.num_frames
        is_new = event.num_frames > self.num_frames or event.finish_reason is not None
        event = _since(event, self.num_frames)
        self.num_frames = max(self.num_frames, event.num_frames)
        while self._forks and self._forks[0][0] <= self._num_answered:
            _, fork = self._forks.pop(0)
            fork.num_frames = max(fork.num_frames, event.num_frames)
            if fork._goes_on and not fork._num_answered:
                fork._num_frames_now = event.num_frames
        return self.put_nowait(event) if is_new or event.token_ids else True


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


def _since(event: Transduced, frame: int) -> Transduced:
    """Without tokens of frames before one; frames never fall."""
    start = sum(each < frame for each in event.frames)
    if start == 0:
        return event
    return msgspec.structs.replace(
        event,
        token_ids=event.token_ids[start:],
        frames=event.frames[start:],
        logprobs=event.logprobs[start:],
    )


def _joined(parts: Sequence[Transduced]) -> Transduced:
    return msgspec.structs.replace(
        parts[-1],
        token_ids=tuple(token_id for part in parts for token_id in part.token_ids),
        frames=tuple(frame for part in parts for frame in part.frames),
        logprobs=tuple(logprob for part in parts for logprob in part.logprobs),
    )
