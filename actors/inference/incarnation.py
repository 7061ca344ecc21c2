"""One incarnation of an engine: its four actors wired together, and what is in flight in them.

Made afresh at every start and given up at a crash, so that nothing of a broken incarnation can reach the
next. Read `actors/inference/engine.py` for who makes it, the actors' files for what they say to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from ...engine.planning.encoder.cache import EncoderCache
from ...engine.planning.plan import Slot
from ...engine.planning.scheduler import Scheduler
from ...engine.text.text_decoder import TextDecoder
from ...protocols.engine.messages import AnyRequest, ContentHash, RequestId
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import BadRequestError, SensoriumError, UnavailableError
from ..runtime.actor import InboxStatistics
from ..runtime.supervisor import Child
from .detokenizer import DetokenizerActor
from .encoder_cache import EncoderCacheActor
from .executor import ExecutorActor, Runner, Worker
from .scheduler import SchedulerActor
from .streams import EventStream

StreamT = TypeVar("StreamT", bound=EventStream[Any])


class EngineGroup:
    """Executor, scheduler, detokenizer and encoder cache of one incarnation."""

    def __init__(
        self,
        *,
        make_runner: Callable[[], Runner],
        make_worker: Callable[[], Worker],
        make_scheduler: Callable[[ExecutorActor], Scheduler],
        make_decoder: Callable[[], TextDecoder],
        cache: EncoderCache,
        step_timeout_s: float,
        survives_hanging: bool,
    ) -> None:
        self.executor = ExecutorActor(
            make_runner=make_runner,
            make_worker=make_worker,
            on_result=lambda result: self.scheduler.handle.step_done(result),
            step_timeout_s=step_timeout_s,
            survives_hanging=survives_hanging,
        )
        self.scheduler = SchedulerActor(
            make_scheduler=lambda: make_scheduler(self.executor),
            execute=self.executor.execute,
            decode=lambda tokens: self.detokenizer.handle.decode(tokens),
            report=lambda event: self.cache.handle.report(event),
        )
        self.detokenizer = DetokenizerActor(
            make_decoder=make_decoder,
            abort=self.scheduler.handle.abort,
            stop=self.scheduler.handle.stop,
        )
        self.cache = EncoderCacheActor(cache, scheduler=self.scheduler.handle)
        self._ledger = cache
        self._streams: dict[RequestId, EventStream[Any]] = {}
        self._held: dict[ContentHash, list[Slot]] = {}

    def children(self) -> Sequence[Child]:
        """The actors in the order of their start: the executor first, since the others need its model."""
        return (
            Child("executor", self.executor.run),
            Child("scheduler", self.scheduler.run),
            Child("detokenizer", self.detokenizer.run),
            Child("encoder cache", self.cache.run),
        )

    @contextmanager
    def opened(self, stream: StreamT) -> Iterator[StreamT]:
        """Let `fail` know of a request's stream for the duration."""
        request_id = stream.request_id
        if request_id in self._streams:
            raise BadRequestError(f"request id {request_id!r} is in use")
        self._streams[request_id] = stream
        try:
            yield stream
        finally:
            del self._streams[request_id]

    @contextmanager
    def holding(self, slots: Mapping[ContentHash, Slot]) -> Iterator[None]:
        """Let `slot_of` find the slots for the duration. Several may hold one content."""
        for content_hash, slot in slots.items():
            self._held.setdefault(content_hash, []).append(slot)
        try:
            yield
        finally:
            for content_hash, slot in slots.items():
                self._held[content_hash].remove(slot)
                if not self._held[content_hash]:
                    del self._held[content_hash]

    def slots_of(self, request: AnyRequest) -> tuple[Slot | None, tuple[Slot, ...]]:
        """Of what a request cross-attends to, and of its media. Raises as `slot_of` does."""
        slot = None if request.encoder_hash is None else self.slot_of(request.encoder_hash)
        return slot, tuple(self.slot_of(span.content_hash) for span in request.media)

    def slot_of(self, content_hash: ContentHash) -> Slot:
        """The slot of a content that is held, the newest if its encode failed and was tried again.

        Raises UnavailableError if it was lost in a restart.
        """
        try:
            return max(self._held[content_hash])
        except KeyError:
            raise UnavailableError("the encoder output is not held; the engine was restarted") from None

    def statistics(self) -> EngineStatistics:
        """Counters and gauges of this incarnation."""
        return msgspec.structs.replace(
            self.scheduler.statistics(),
            num_cache_hits=self._ledger.num_hits,
            num_cache_misses=self._ledger.num_misses,
            num_cache_entries=self._ledger.num_entries,
            num_cache_references=self._ledger.num_references,
            cache_bytes=self._ledger.num_bytes,
        )

    def inboxes(self) -> Sequence[InboxStatistics]:
        """Statistics of the four inboxes."""
        actors = (self.executor, self.scheduler, self.detokenizer, self.cache)
        return tuple(actor.inbox.statistics() for actor in actors)

    def fail(self, error: SensoriumError) -> None:
        """Fail every stream with `error` and every open question with UnavailableError."""
        for stream in self._streams.values():
            stream.fail(error)
        for actor in (self.executor, self.scheduler, self.detokenizer, self.cache):
            actor.inbox.close()
