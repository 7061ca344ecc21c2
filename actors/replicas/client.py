"""One model that several engines run, as one `EngineClient`: a request is placed at one of them and stays
there.

An engine that is down, silent or drained is left out. What it had to answer goes elsewhere if nothing of the
answer was given yet; else its caller is told that the engine was lost. A turn of a live session is then
computed again from its audio by whoever keeps that, as after a restart of the only engine. Read
`actors/replicas/router.py` for how one is chosen.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Final, Generic, Self, TypeVar, overload

import trio

from ...engine.models.info import ModelInfo
from ...protocols.engine.messages import (
    INTERACTIVE,
    EncoderItem,
    Lane,
    MediaSpan,
    Outcome,
    PromptRequest,
    Sample,
    SampleRequest,
    SessionKey,
    TextGenerated,
    Transduce,
    TransduceRequest,
)
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import UnavailableError
from ..inference.client import EngineClient, FedRun, Fetch, Place, Run, unavailable
from ..runtime.actor import InboxStatistics
from ..runtime.supervisor import Health
from .router import BLOCK, DEFAULT_CAPACITY, Router, prompt_names

AnswerT = TypeVar("AnswerT")

_IN_ORDER: Final[tuple[Health, ...]] = (
    "ready",
    "unresponsive",
    "restarting",
    "starting",
    "failed",
    "stopped",
)
"""The best of several engines' is that of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placement:
    """What a caller asked to have placed."""

    items: Sequence[EncoderItem]
    key: str | None
    names: Sequence[bytes]
    prompt_token_ids: Sequence[int]
    lane: Lane
    fetch: Fetch | None


class ReplicatedEngine(EngineClient):
    """One model, run by several engines. All methods are called from the trio loop."""

    def __init__(
        self,
        name: str,
        engines: Sequence[EngineClient],
        *,
        block_size: int = 16,
        is_drained: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`block_size` is that of the engines' caches, in tokens. `is_drained` says of which engines nothing
        new is asked, though they are ready."""
        self.name = name
        self.engines = list(engines)
        self.router = Router(len(engines))
        self._block_size = block_size
        self._is_drained = is_drained

    def add(self, engine: EngineClient) -> None:
        """One more that runs it."""
        self.engines.append(engine)
        self.router.add()

    @property
    def info(self) -> ModelInfo:
        """See `EngineClient.info`: it is the same of all."""
        return self.engines[0].info

    @property
    def health(self) -> Health:
        """That of the engine that does best: requests are served while one is ready."""
        return min((engine.health for engine in self.engines), key=_IN_ORDER.index)

    def statistics(self) -> EngineStatistics:
        """The sum over all engines."""
        return reduce(add, (engine.statistics() for engine in self.engines))

    def inboxes(self) -> Iterable[InboxStatistics]:
        """Of each engine, under its number."""
        return [
            replace(inbox, name=f"{index}/{inbox.name}")
            for index, engine in enumerate(self.engines)
            for inbox in engine.inboxes()
        ]

    async def refresh(self) -> None:
        """See `EngineClient.refresh`."""
        async with trio.open_nursery() as nursery:
            for engine in self.engines:
                nursery.start_soon(engine.refresh)

    @asynccontextmanager
    async def placed(
        self,
        items: Sequence[EncoderItem] = (),
        key: str | None = None,
        prompt_token_ids: Sequence[int] = (),
        *,
        spans: Sequence[MediaSpan] = (),
        lane: Lane = INTERACTIVE,
        fetch: Fetch | None = None,
    ) -> AsyncIterator[Place]:
        """See `EngineClient.placed`."""
        names = prompt_names(prompt_token_ids, spans, items) if key is None else ()
        placement = _Placement(
            items=items, key=key, names=names, prompt_token_ids=prompt_token_ids, lane=lane, fetch=fetch
        )
        async with AsyncExitStack() as stack:
            try:
                place = await stack.enter_async_context(self.place(placement))
            except UnavailableError:
                if not self.available():
                    raise
                place = await stack.enter_async_context(self.place(placement))
            yield ReplicaPlace(self, placement, place)

    def close_session(self, session: SessionKey) -> None:
        """See `EngineClient.close_session`."""
        index = self.router.close(session)
        if index is not None:
            self.engines[index].close_session(session)

    def available(self) -> list[int]:
        """The engines that may be asked. Those that wait to be replaced are asked if there is no other."""
        ready = [index for index, engine in enumerate(self.engines) if engine.health == "ready"]
        return [index for index in ready if not self._is_drained(index)] or ready

    @asynccontextmanager
    async def place(self, placement: _Placement) -> AsyncIterator[Place]:
        """A place of the engine that suits best."""
        available = self.available()
        if not available:
            raise unavailable(self.name, self.health)
        index = self.router.choose(
            available, placement.key, placement.names, capacity=self._capacity(available[0])
        )
        engine = self.engines[index]
        self.router.enter(index)
        try:
            async with engine.placed(
                placement.items,
                placement.key,
                placement.prompt_token_ids,
                lane=placement.lane,
                fetch=placement.fetch,
            ) as place:
                yield place
        finally:
            self.router.leave(index)

    def _capacity(self, index: int) -> int:
        num_tokens = self.engines[index].statistics().num_total_blocks * self._block_size
        return max(1, num_tokens // BLOCK) if num_tokens else DEFAULT_CAPACITY


@dataclass(frozen=True, slots=True)
class ReplicaPlace(Place):
    """Where requests run; one that answers goes on elsewhere if its engine is lost before it said
    anything."""

    engine: ReplicatedEngine
    placement: _Placement
    first: Place

    @overload
    def run(self, request: SampleRequest) -> AbstractAsyncContextManager[Run[TextGenerated]]: ...
    @overload
    def run(self, request: PromptRequest) -> AbstractAsyncContextManager[Run[Outcome]]: ...
    @overload
    def run(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]: ...
    def run(
        self, request: SampleRequest | PromptRequest | TransduceRequest
    ) -> AbstractAsyncContextManager[Run[TextGenerated] | Run[Outcome] | FedRun]:
        """See `Place.run`."""
        if isinstance(request.task, Sample):
            sample = request
            return self._moving(lambda place: place.run(sample))
        if isinstance(request.task, Transduce):  # its caller has the input, and feeds it again
            return self.first.run(request)
        prompt = request
        return self._moving(lambda place: place.run(prompt))

    @asynccontextmanager
    async def _moving(
        self, run_at: Callable[[Place], AbstractAsyncContextManager[Run[AnswerT]]]
    ) -> AsyncIterator[Run[AnswerT]]:
        async with AsyncExitStack() as stack:
            run = MovingRun(self, run_at, stack)
            await run.begin()
            yield run


class MovingRun(Generic[AnswerT]):
    """A run that begins again at another engine if its own is lost before it has answered anything.

    Once only: a request that ends the process it runs in must not end all of them.
    """

    def __init__(
        self,
        place: ReplicaPlace,
        run_at: Callable[[Place], AbstractAsyncContextManager[Run[AnswerT]]],
        stack: AsyncExitStack,
    ) -> None:
        self._place = place
        self._run_at = run_at
        self._stack = stack
        self._run: Run[AnswerT]
        self._may_move = True

    async def begin(self) -> None:
        """Run it where it was placed, or elsewhere if that engine is down by now."""
        try:
            self._run = await self._entered(self._place.first)
        except UnavailableError as error:
            await self._move(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnswerT:
        try:
            answer = await anext(self._iterated())
        except UnavailableError as error:
            await self._move(error)
            answer = await anext(self._iterated())
        self._may_move = False
        return answer

    async def outcome(self) -> AnswerT:
        """See `Run.outcome`."""
        try:
            return await self._run.outcome()
        except UnavailableError as error:
            await self._move(error)
            return await self._run.outcome()

    def _iterated(self) -> AsyncIterator[AnswerT]:
        return aiter(self._run)

    async def _entered(self, place: Place) -> Run[AnswerT]:
        return await self._stack.enter_async_context(self._run_at(place))

    async def _move(self, error: UnavailableError) -> None:
        engine = self._place.engine
        if not self._may_move or not engine.available():
            raise error
        self._may_move = False
        place = await self._stack.enter_async_context(engine.place(self._place.placement))
        self._run = await self._entered(place)
