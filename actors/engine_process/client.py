"""The side of those who ask: engines of another process, each an `EngineClient`.

A `RemoteEngine` stays while processes come and go; a `Line` is the connection to one of them. Between two of
them everything that is asked fails with UnavailableError, as it does while an engine of this process
restarts. Read `actors/engine_process/process.py` for who makes lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, overload

import trio

from ...engine.models.info import ModelInfo
from ...protocols.engine.messages import (
    INTERACTIVE,
    EncoderItem,
    InputChunk,
    Lane,
    MediaSpan,
    Outcome,
    PromptRequest,
    Sample,
    SampleRequest,
    SessionKey,
    Transduce,
    TransduceRequest,
)
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import SensoriumError, UnavailableError
from ..inference.beam_search import SearchRun
from ..inference.client import EngineClient, FedRun, Fetch, OutcomeRun, Place, Run, sent_with, unavailable
from ..inference.detokenizer import TextReader, TextStream
from ..inference.fed_runs import FedReader, TransduceStream
from ..runtime.actor import InboxStatistics
from ..runtime.supervisor import Health
from ..telemetry.logs import log_context
from . import messages
from .connection import Line

_STATE_TIMEOUT_S: Final = 1.0
_NO_STATE: Final = messages.ModelState("starting", EngineStatistics(), ())


class RemoteEngine(EngineClient):
    """One model of another process. All methods are called from the trio loop."""

    def __init__(
        self, name: str, index: int, down: Callable[[], Health], back_in_s: Callable[[], float]
    ) -> None:
        """`index` is its place among the process' models; `down` says what is while there is no process, and
        `back_in_s` when there should be one."""
        self.name = name
        self._index = index
        self._down = down
        self._back_in_s = back_in_s
        self._info: ModelInfo | None = None
        self._line: Line | None = None
        self._state = _NO_STATE
        self._former = EngineStatistics()  # counters of the processes before

    def set_info(self, info: ModelInfo) -> None:
        """What is known of the model, from its process."""
        self._info = info

    def connect(self, line: Line) -> None:
        """There is a process, and it is ready."""
        self._line = line

    def disconnect(self) -> None:
        """It is gone, and there will be another; its counters stay."""
        if self._line is None:
            return
        self._line = None
        self._former += EngineStatistics(num_restarts=1)
        self._former += self._state.statistics.counters()
        self._state = _NO_STATE

    def take(self, state: messages.State) -> None:
        """What the process says of all its engines."""
        if self._index < len(state.models):  # else it runs other models, and `Opened` is refused by name
            self._state = state.models[self._index]

    @property
    def info(self) -> ModelInfo:
        """See `EngineClient.info`. Raises UnavailableError before the first start is done."""
        if self._info is None:
            raise UnavailableError(f"the model {self.name} is not loaded yet")
        return self._info

    @property
    def health(self) -> Health:
        """The process', or its engine's as it last said."""
        if self._line is None:
            return self._down()
        return "unresponsive" if self._line.is_silent else self._state.health

    def statistics(self) -> EngineStatistics:
        """As of the last quarter of a second, or the last `refresh`."""
        return self._former + self._state.statistics

    def latest(self) -> EngineStatistics:
        """What the process that is there said last, without those before it."""
        return self._state.statistics

    def inboxes(self) -> Sequence[InboxStatistics]:
        """Statistics of the engine's inboxes, as old as `statistics`."""
        return self._state.inboxes

    async def refresh(self) -> None:
        """See `EngineClient.refresh`. Takes a second at most."""
        if self._line is None or self._line.is_silent:
            return
        with trio.move_on_after(_STATE_TIMEOUT_S):
            try:
                async with self._line.call(messages.GetState()) as call:
                    await call.answer(messages.State)
            except SensoriumError:
                return

    @asynccontextmanager
    async def placed(
        self,
        items: Sequence[EncoderItem] = (),
        key: str | None = None,  # noqa: ARG002 (there is one engine)
        prompt_token_ids: Sequence[int] = (),  # noqa: ARG002
        *,
        spans: Sequence[MediaSpan] = (),  # noqa: ARG002
        lane: Lane = INTERACTIVE,
        fetch: Fetch | None = None,
    ) -> AsyncIterator[RemotePlace]:
        """See `EngineClient.placed`."""
        line, place = self._live(), RemotePlace(self._live, self._index)
        if not items:
            yield place
            return
        fetch = fetch or sent_with(items)
        async with line.call(
            messages.Hold(self._index, tuple(item.key for item in items), lane, log_context())
        ) as call:
            while isinstance(
                answer := await call.answer(messages.Missing, messages.Accepted), messages.Missing
            ):
                features = await fetch(answer.hashes)
                assert len(features) == len(answer.hashes)
                await call.supply(features)
            yield place

    def close_session(self, session: SessionKey) -> None:
        if self._line is not None:
            self._line.send_nowait(messages.CloseSession(self._index, session))

    def _live(self) -> Line:
        if self._line is None or self.health != "ready":
            raise unavailable(self.name, self.health, back_in_s=self._back_in_s())
        return self._line


@asynccontextmanager
async def fed_run(
    line: Line, index: int, request: TransduceRequest, message: messages.Run | messages.Fork
) -> AsyncIterator[FedRun]:
    """A request that is fed over `line`, begun by a `message`."""
    stream = TransduceStream(request.request_id)
    async with line.call(message, stream) as call:
        await call.answer(messages.Accepted)
        yield RemoteFedRun(stream, line, index, call.number)


class RemoteFedRun(FedReader):
    """A fed request of the other process, which the call `number` runs."""

    def __init__(self, stream: TransduceStream, line: Line, index: int, number: int) -> None:
        super().__init__(stream)
        self._line = line
        self._index = index
        self._number = number
        self._in_order = trio.Lock()

    async def feed(self, chunk: InputChunk) -> None:
        """See `FedRun.feed`."""
        feed, buffers = messages.feed_of(self._index, self._number, chunk, log_context())
        async with self._in_order:  # large messages of two calls take turns
            self.stream.raise_if_lost()
            async with self._line.call(feed, buffers=buffers) as call:
                await call.answer(messages.Accepted)

    def fork(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]:
        """See `FedRun.fork`."""
        self.stream.raise_if_lost()
        fork = messages.Fork(self._index, self._number, request, log_context())
        return fed_run(self._line, self._index, request, fork)


@dataclass(frozen=True, slots=True)
class RemotePlace(Place):
    """Where requests to one model of the other process run."""

    live: Callable[[], Line]
    index: int

    @overload
    def run(self, request: SampleRequest) -> AbstractAsyncContextManager[TextReader]: ...
    @overload
    def run(self, request: PromptRequest) -> AbstractAsyncContextManager[Run[Outcome]]: ...
    @overload
    def run(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]: ...
    def run(
        self, request: SampleRequest | PromptRequest | TransduceRequest
    ) -> AbstractAsyncContextManager[TextReader | Run[Outcome] | FedRun]:
        """See `Place.run`."""
        if isinstance(request.task, Sample):
            return self._sampled(request)
        if isinstance(request.task, Transduce):
            return fed_run(self.live(), self.index, request, messages.Run(self.index, request, log_context()))
        return self._outcome(request)

    @asynccontextmanager
    async def _sampled(self, request: SampleRequest) -> AsyncIterator[TextReader]:
        stream = TextStream(request.request_id)
        async with self.live().call(messages.Run(self.index, request, log_context()), stream) as call:
            await call.answer(messages.Accepted)
            yield stream if request.task.sampling.num_beams == 1 else SearchRun(stream.outcome)

    @asynccontextmanager
    async def _outcome(self, request: PromptRequest) -> AsyncIterator[Run[Outcome]]:
        async with self.live().call(messages.Run(self.index, request, log_context())) as call:

            async def outcome() -> Outcome:
                return (await call.answer(messages.Performed)).outcome

            yield OutcomeRun(outcome)
