"""Drives `engine/planning/scheduler.py`: takes requests and step results, gives the executor plan after plan.

With `max_plans_in_flight` of 1 a plan is made when the last result is in: it holds the newest arrivals, and
the device waits while it is made. With 2, step N + 1 is planned while the device runs step N, so that it
never waits; what arrives meanwhile joins a step later. Owns the queues and the block pool through the pure
scheduler; knows neither device nor text. Read `engine/planning/scheduler.py` for the decisions,
`actors/inference/executor.py` for what happens to a plan.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, assert_never

import msgspec
import trio

from ...engine.planning.encoder.effects import Drop, Encode, Free, SlotEffect
from ...engine.planning.events import EncodeDropped, EncodeFailed, SchedulerEvent, WindowEncoded
from ...engine.planning.plan import Plan, Slot, StepResult
from ...engine.planning.request_times import RequestClocks
from ...engine.planning.scheduler import Scheduler
from ...protocols.engine.messages import (
    Align,
    InputChunk,
    Outcome,
    PromptRequest,
    RequestId,
    SampleRequest,
    SessionKey,
    StateEvicted,
    TaskFailed,
    TokensSampled,
    Transduced,
    TransduceEvent,
    TransduceRequest,
)
from ...protocols.engine.statistics import EngineStatistics
from ...protocols.errors import BadRequestError, InternalError, SensoriumError
from ..runtime.actor import Handle, Inbox, Reply
from .client import failed_alone
from .detokenizer import StreamId
from .fed_runs import TransduceStream

logger = logging.getLogger(__name__)

_MAX_PAUSE_S: Final = 0.1
"""Longest an engine pauses between two steps while another one serves live requests."""
_POLL_S: Final = 0.005
"""How often it asks meanwhile whether that one still does."""
INBOX_CAPACITY: Final = 4096
"""Requests that may arrive in one turn of the loop; those that must wait do so in the scheduler."""

Part = Literal["first", "later"]
"""Of a larger request: nobody sees how long a part takes, so it is not timed; the first one is admitted for
all, so later ones are not refused because many wait, nor others because of them."""


@dataclass(frozen=True, slots=True)
class _Submit:
    """A request whose tokens go to a stream."""

    request: SampleRequest
    slot: Slot | None
    media_slots: tuple[Slot, ...]
    stream_id: StreamId
    part: Part | None
    reply: Reply[None]


@dataclass(frozen=True, slots=True)
class _Perform:
    """A request with one outcome."""

    request: PromptRequest
    slot: Slot | None
    media_slots: tuple[Slot, ...]
    reply: Reply[Outcome]


@dataclass(frozen=True, slots=True)
class _OpenFed:
    """A request that is fed, whose events go to a stream; with a parent it goes on from that."""

    request: TransduceRequest
    stream: TransduceStream
    stream_id: StreamId
    parent: tuple[RequestId, StreamId] | None
    reply: Reply[None]


@dataclass(frozen=True, slots=True)
class _Feed:
    request_id: RequestId
    stream_id: StreamId
    chunk: InputChunk
    reply: Reply[None]


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: RequestId
    stream_id: StreamId | None
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class _CloseSession:
    session: SessionKey


_Message = _Submit | _Perform | _OpenFed | _Feed | _Abort | _CloseSession | SlotEffect | StepResult


class SchedulerHandle:
    """What others may ask of the scheduler."""

    def __init__(self, handle: Handle[_Message]) -> None:
        self._handle = handle

    async def submit(
        self,
        request: SampleRequest,
        slot: Slot | None,
        stream_id: StreamId,
        *,
        media_slots: tuple[Slot, ...] = (),
        part: Part | None = None,
    ) -> None:
        """Queue a request that samples, whose tokens go to the detokenizer under `stream_id`.

        Raises if it is refused.
        """
        await self._handle.call(lambda reply: _Submit(request, slot, media_slots, stream_id, part, reply))

    async def perform_task(
        self, request: PromptRequest, slot: Slot | None, media_slots: tuple[Slot, ...] = ()
    ) -> Outcome:
        """The outcome of a request that does not sample. On cancellation, `abort` it."""
        return await self._handle.call(lambda reply: _Perform(request, slot, media_slots, reply))

    async def open_fed(
        self,
        request: TransduceRequest,
        stream: TransduceStream,
        stream_id: StreamId,
        *,
        parent: tuple[RequestId, StreamId] | None = None,
    ) -> None:
        """Queue a request that is fed, or the fork of one. Raises if it is refused."""
        await self._handle.call(lambda reply: _OpenFed(request, stream, stream_id, parent, reply))

    async def feed(self, request_id: RequestId, stream_id: StreamId, chunk: InputChunk) -> None:
        """The next input of a request. Raises if it is refused."""
        await self._handle.call(lambda reply: _Feed(request_id, stream_id, chunk, reply))

    def abort(self, request_id: RequestId, stream_id: StreamId | None = None) -> None:
        """End a request (the one submitted with `stream_id`, if it samples)."""
        self._handle.follow_up(_Abort(request_id, stream_id))

    def stop(self, request_id: RequestId, stream_id: StreamId) -> None:
        """End a request whose text has met a stop string: it is answered."""
        self._handle.follow_up(_Abort(request_id, stream_id, is_answered=True))

    def close_session(self, session: SessionKey) -> None:
        """Let go of what a session keeps; a request of it that is running goes on."""
        self._handle.follow_up(_CloseSession(session))

    def perform(self, effect: SlotEffect) -> None:
        """Do what the encoder cache wants done with a slot."""
        self._handle.follow_up(effect)

    def step_done(self, result: StepResult) -> None:
        """The result of a plan (from the executor)."""
        self._handle.follow_up(result)


class SchedulerActor:
    """One task that owns the scheduler; where results go is told by three functions."""

    def __init__(
        self,
        *,
        make_scheduler: Callable[[], Scheduler],
        execute: Callable[[Plan], None],
        decode: Callable[[Sequence[tuple[StreamId, TokensSampled]]], None],
        report: Callable[[WindowEncoded | EncodeFailed | EncodeDropped], None],
    ) -> None:
        self.inbox: Inbox[_Message] = Inbox("scheduler", INBOX_CAPACITY)
        self.handle = SchedulerHandle(Handle(self.inbox))
        self._make_scheduler = make_scheduler
        self._scheduler: Scheduler | None = None
        self._execute = execute
        self._decode = decode
        self._report = report
        self._streams: dict[RequestId, StreamId] = {}
        self._replies: dict[RequestId, Reply[Outcome]] = {}
        self._fed: dict[RequestId, TransduceStream] = {}
        self._clocks = RequestClocks()
        self._pause_until = -math.inf
        """While another engine of the process serves live requests."""
        self._is_pausing = False

    def statistics(self) -> EngineStatistics:
        """Counters and gauges of the scheduler."""
        if self._scheduler is None:
            return EngineStatistics()
        return msgspec.structs.replace(self._scheduler.statistics(), **self._clocks.times())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Schedule until cancelled. `make_scheduler` is called first: it may need what others found out."""
        scheduler = self._scheduler = self._make_scheduler()
        with self.inbox:
            task_status.started()
            while True:
                tokens: list[tuple[StreamId, TokensSampled]] = []
                for message in await self._receive():
                    for event in self._handle_message(scheduler, message):
                        self._route(event, tokens)
                has_planned = self._plan(scheduler)
                for event in scheduler.take_events():
                    self._route(event, tokens)
                if has_planned:
                    await trio.lowlevel.checkpoint()  # the device gets its plan before text is made
                if tokens:
                    self._decode(tokens)

    async def _receive(self) -> Sequence[_Message]:
        """All that came; nothing after a while, where the next step is put off."""
        if not self._is_pausing:
            return (await self.inbox.receive(), *self.inbox.take_all())
        with trio.move_on_after(_POLL_S):
            return (await self.inbox.receive(), *self.inbox.take_all())
        return ()

    def _plan(self, scheduler: Scheduler) -> bool:
        """Give the device as many plans as may be in flight. False if there was none to give."""
        has_planned = False
        self._is_pausing = trio.current_time() < self._pause_until and scheduler.stands_back
        if self._is_pausing:
            return False
        while scheduler.num_in_flight < scheduler.config.max_plans_in_flight:
            plan = scheduler.schedule()
            if not plan:
                break
            self._clocks.planned(plan, now=trio.current_time())
            self._execute(plan)
            has_planned = True
        overlapped = scheduler.schedule_overlapped()
        if overlapped is not None:
            self._execute(overlapped)
        return has_planned or overlapped is not None

    def _handle_message(self, scheduler: Scheduler, message: _Message) -> Iterable[SchedulerEvent]:
        match message:
            case StepResult(busy_s=busy_s):
                pause_s = (scheduler.config.low_priority_interval - 1) * busy_s
                self._pause_until = trio.current_time() + min(pause_s, _MAX_PAUSE_S)
                return scheduler.update(message)
            case _Submit() | _Perform() | _OpenFed():
                return self._admit(scheduler, message)
            case _Feed():
                self._feed(scheduler, message)
            case _Abort(request_id, stream_id, is_answered):
                if self._streams.get(request_id) == stream_id:
                    scheduler.abort(request_id)
                    if is_answered:
                        self._clocks.answered(request_id, now=trio.current_time())
                    else:
                        self._clocks.aborted(request_id)
                    self._streams.pop(request_id, None)
                    self._replies.pop(request_id, None)
                    self._fed.pop(request_id, None)
                    return scheduler.take_events()
            case _CloseSession(session):
                scheduler.close_session(session)
            case Encode(slot, features):
                scheduler.encode(slot, features)
            case Drop(slot):
                return scheduler.drop_encode(slot)
            case Free(slot):
                return scheduler.free(slot)
            case _:
                assert_never(message)
        return ()

    def _feed(self, scheduler: Scheduler, message: _Feed) -> None:
        try:
            self._check_is_open(message.request_id, message.stream_id)
            scheduler.feed(message.request_id, message.chunk)
            message.reply.set(None)
        except SensoriumError as error:
            message.reply.fail(error)

    def _check_is_open(self, request_id: RequestId, stream_id: StreamId) -> None:
        if self._streams.get(request_id) != stream_id:
            raise BadRequestError(f"the request {request_id!r} has ended, and takes no more input")

    def _admit(
        self, scheduler: Scheduler, message: _Submit | _Perform | _OpenFed
    ) -> Iterable[SchedulerEvent]:
        """Queue a request, or answer why not."""
        events: Iterable[SchedulerEvent] = ()
        try:
            match message:
                case _Submit(request, slot, media_slots, stream_id, part, reply):
                    events = scheduler.submit(request, slot, media_slots, is_admitted=part == "later")
                    self._streams[request.request_id] = stream_id
                    if part is None:
                        self._clocks.submitted(request, now=trio.current_time())
                    reply.set(None)
                case _Perform(request, slot, media_slots, outcome_reply):
                    events = scheduler.submit(request, slot, media_slots)
                    self._replies[request.request_id] = outcome_reply
                    if not isinstance(request.task, Align):  # an afterthought of a request that was timed
                        self._clocks.submitted(request, now=trio.current_time())
                case _OpenFed(request=fed, parent=None):
                    events = scheduler.submit(fed, None)
                    self._open(message)
                case _OpenFed(request=fed, parent=(parent_id, parent_stream_id)):
                    self._check_is_open(parent_id, parent_stream_id)
                    events = scheduler.fork(parent_id, fed)
                    self._open(message)
        except SensoriumError as error:
            message.reply.fail(error)
        return events

    def _open(self, message: _OpenFed) -> None:
        self._streams[message.request.request_id] = message.stream_id
        self._fed[message.request.request_id] = message.stream
        message.reply.set(None)

    def _tell(self, event: TransduceEvent | TaskFailed) -> None:
        """Give the stream of a fed request what came of it."""
        stream = self._fed[event.request_id]
        with stream.log_context.applied():
            match event:
                case TaskFailed():
                    stream.fail(InternalError(f"The engine failed on this request: {failed_alone(event)}."))
                case StateEvicted():
                    logger.info("%s: its states were evicted, it is to be fed again", event.request_id)
                    stream.put_nowait(event)
                case _ if not stream.put_nowait(event):
                    logger.warning("%s: its reader lags too far behind, aborted", event.request_id)
                    self.handle.abort(event.request_id, self._streams[event.request_id])
        if stream.is_finished and (isinstance(event, TaskFailed) or stream.is_last(event)):
            del self._fed[event.request_id], self._streams[event.request_id]

    def _route(self, event: SchedulerEvent, tokens: list[tuple[StreamId, TokensSampled]]) -> None:
        """Answer, report, or add to `tokens`. At once: the id may have a new user a message later."""
        match event:
            case TokensSampled():
                self._clocks.sampled(event, now=trio.current_time())
                tokens.append((self._streams[event.request_id], event))
                if event.finish_reason is not None:
                    del self._streams[event.request_id]
            case WindowEncoded() | EncodeFailed() | EncodeDropped():
                self._report(event)
            case Transduced() | StateEvicted():
                self._tell(event)
            case TaskFailed() if event.request_id in self._fed:
                self._tell(event)
            case _:
                self._clocks.done(event, now=trio.current_time())
                self._replies.pop(event.request_id).set(event)
