"""Runs requests on the engine of this process: queues them, gives their answers, ends those that are left.

The encodings that a request names are held by `actors/inference/engine.py`, which makes the one `EnginePlace`
of an engine. Read `actors/inference/client.py` for what a caller sees, `actors/inference/scheduler.py` for
what happens to a request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import overload

import trio

from ...engine.planning.limits import SchedulerConfig
from ...engine.text.detokenizer import Detokenizer
from ...engine.text.keyword_boosting import tree_of
from ...engine.text.text_decoder import TextDecoder
from ...protocols.engine.messages import (
    AnyRequest,
    InputChunk,
    Outcome,
    Phrases,
    PromptRequest,
    Sample,
    SampleRequest,
    SessionKey,
    TextGenerated,
    Transduce,
    TransduceRequest,
)
from ...protocols.errors import BadRequestError, UnavailableError
from ..runtime.off_loop import off_loop
from ..telemetry.logs import REQUEST_ID
from .beam_search import SearchRun, check_beams, search
from .client import FedRun, OutcomeRun, Place, Run
from .detokenizer import StreamId, TextReader, TextStream
from .fed_runs import FedReader, TransduceStream
from .grammars import GrammarCompiler
from .incarnation import EngineGroup
from .keyword_boosting import PhraseStream, check_phrased, expecting
from .scheduler import Part


class EngineFedRun(FedReader):
    """A fed request of one incarnation."""

    def __init__(self, stream: TransduceStream, stream_id: StreamId, group: EngineGroup, fork: Fork) -> None:
        super().__init__(stream)
        self.stream_id = stream_id
        self.group = group
        self._fork = fork

    async def feed(self, chunk: InputChunk) -> None:
        """See `FedRun.feed`."""
        await self.group.scheduler.handle.feed(self.stream.request_id, self.stream_id, chunk)

    def fork(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]:
        """See `FedRun.fork`."""
        return self._fork(request, self)


Fork = Callable[[TransduceRequest, EngineFedRun], AbstractAsyncContextManager[FedRun]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlace(Place):
    """Where requests run. `live` gives the incarnation that serves, or raises UnavailableError."""

    live: Callable[[], EngineGroup]
    limits: Callable[[], SchedulerConfig]
    """Of what is served, once the model is loaded."""
    grammars: GrammarCompiler
    make_decoder: Callable[[], TextDecoder]
    ids: Iterator[int]
    close_session: Callable[[SessionKey], None]
    running: dict[int, str] = field(default_factory=dict)
    """What the clients' requests that run here are called in the log, or else their own names."""

    @overload
    def run(self, request: SampleRequest) -> AbstractAsyncContextManager[TextReader]: ...
    @overload
    def run(self, request: PromptRequest) -> AbstractAsyncContextManager[Run[Outcome]]: ...
    @overload
    def run(self, request: TransduceRequest) -> AbstractAsyncContextManager[FedRun]: ...
    def run(
        self, request: SampleRequest | PromptRequest | TransduceRequest
    ) -> AbstractAsyncContextManager[TextReader | Run[Outcome] | FedRun]:
        """See `Place.run`. A grammar is compiled before its request is queued."""
        if isinstance(request.task, Sample):
            return self._sampled(request)
        if isinstance(request.task, Transduce):
            return self._fed(request, None)
        return self._outcome(request)

    @asynccontextmanager
    async def _fed(self, request: TransduceRequest, parent: EngineFedRun | None) -> AsyncIterator[FedRun]:
        group = self.live()
        if parent is not None and parent.group is not group:
            raise UnavailableError("the engine was restarted")
        name = request.request_id
        stream = TransduceStream(name)
        stream_id = StreamId(next(self.ids))
        with self._noted(request), group.opened(stream):
            try:
                of = None if parent is None else (parent.stream.request_id, parent.stream_id)
                await group.scheduler.handle.open_fed(request, stream, stream_id, parent=of)
                yield EngineFedRun(stream, stream_id, group, self._fed)
            finally:
                if not stream.is_finished:
                    group.scheduler.handle.abort(name, stream_id)

    @asynccontextmanager
    async def _outcome(self, request: PromptRequest) -> AsyncIterator[Run[Outcome]]:
        with self._noted(request):
            self.live()
            yield OutcomeRun(partial(self._perform, request))

    async def _perform(self, request: PromptRequest) -> Outcome:
        group = self.live()
        slot, media_slots = group.slots_of(request)
        try:
            return await group.scheduler.handle.perform_task(request, slot, media_slots)
        except trio.Cancelled:
            group.scheduler.handle.abort(request.request_id)
            raise

    @asynccontextmanager
    async def _sampled(self, request: SampleRequest) -> AsyncIterator[TextReader]:
        with self._noted(request):
            async with self._opened(request) as reader:
                yield reader

    @contextmanager
    def _noted(self, request: AnyRequest) -> Iterator[None]:
        number = next(self.ids)
        self.running[number] = REQUEST_ID.get() or request.request_id
        try:
            yield
        finally:
            del self.running[number]

    @asynccontextmanager
    async def _opened(self, request: SampleRequest) -> AsyncIterator[TextReader]:
        sampling = request.task.sampling
        if not all(sampling.stop):
            raise BadRequestError("a stop string is empty", param="stop")
        group = self.live()
        if sampling.num_beams > 1:
            check_beams(request)
            self.limits().check(request)  # parts are shorter: one would only fail far into the answer
            with group.opened(TextStream(request.request_id)):  # its id is in use
                yield SearchRun(partial(self._search, request))
            return
        if sampling.phrases is not None:
            async with self._expecting(request, sampling.phrases) as expected:
                yield expected
            return
        grammar, caller = sampling.grammar, request.lane.caller
        with self.grammars.holding(grammar, caller=caller):
            await self.grammars.compile(grammar, caller=caller)
            async with self._submitted(request, stride=request.task.tokens_a_message) as stream:
                yield stream

    async def _search(self, request: SampleRequest) -> TextGenerated:
        sampled = await search(request, partial(self._submitted, stride=None), self.close_session)
        return Detokenizer(self.make_decoder(), request.task.sampling).push(sampled)

    @asynccontextmanager
    async def _expecting(self, request: SampleRequest, phrases: Phrases) -> AsyncIterator[PhraseStream]:
        check_phrased(request.task.sampling)
        size = sum(map(len, phrases.first + phrases.within))
        tree = await off_loop(partial(tree_of, phrases), size=size)
        detokenizer = Detokenizer(self.make_decoder(), request.task.sampling)
        submit = partial(self._submitted, stride=request.task.tokens_a_message)
        async with expecting(request, submit, tree, detokenizer) as stream:
            yield stream

    @asynccontextmanager
    async def _submitted(
        self, request: SampleRequest, *, stride: int | None, part: Part | None = None
    ) -> AsyncIterator[TextStream]:
        """Queue `request`, whose grammar is ready, and end it on leaving."""
        group = self.live()
        slot, media_slots = group.slots_of(request)
        stream_id = StreamId(next(self.ids))
        with group.opened(TextStream(request.request_id, stride=stride)) as stream:
            try:
                group.detokenizer.handle.open(stream_id, stream, request.task.sampling)
                await group.scheduler.handle.submit(
                    request, slot, stream_id, media_slots=media_slots, part=part
                )
                yield stream
            finally:
                if not stream.is_finished:
                    end = group.scheduler.handle.stop if stream.is_enough else group.scheduler.handle.abort
                    end(request.request_id, stream_id)
                    group.detokenizer.handle.close(stream_id)
