"""The actor kernel: inboxes, handles, replies, and the one driver of pure machines.

An actor is one task that owns one resource and takes messages from its `Inbox`; others hold a typed handle
built on `Handle`, which can *tell* (no answer) or *ask* (await the answer). Nothing here knows what the
messages mean. Read `actors/runtime/supervisor.py` next for how actors start and end,
`actors/inference/scheduler.py` for one.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, TypeVar

import trio

from ...protocols.errors import OverloadedError, UnavailableError

T = TypeVar("T")
MessageT = TypeVar("MessageT")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
EventT = TypeVar("EventT")
EffectT_co = TypeVar("EffectT_co", covariant=True)
EffectT = TypeVar("EffectT")


class Reply(Generic[T]):
    """The place inside a message for its one answer. The first answer counts, later ones are ignored."""

    __slots__ = ("_answered", "_error", "_value")

    def __init__(self) -> None:
        self._answered = trio.Event()
        self._value: T
        self._error: Exception | None = None

    def set(self, value: T) -> None:
        """Answer with `value`."""
        if not self._answered.is_set():
            self._value = value
            self._answered.set()

    def fail(self, error: Exception) -> None:
        """Answer with an error, raised where the question was asked."""
        if not self._answered.is_set():
            self._error = error
            self._answered.set()

    async def wait(self) -> T:
        """The answer, to whoever asked, once. Cancellation leaves the question standing; its answer is then
        ignored."""
        await self._answered.wait()
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            self._error = None  # its traceback holds the frames of who asked, and they this reply


@dataclass(frozen=True, slots=True)
class InboxStatistics:
    """Counters of one inbox since it was made, and its depth now."""

    name: str
    capacity: int
    depth: int
    max_depth: int
    num_received: int
    num_refused: int


class Inbox(Generic[MessageT]):
    """The receiving end of one actor: at most `capacity` messages that nobody has admitted yet.

    Closing it (the actor does, however it ends) answers every open question with UnavailableError.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        # Unbounded underneath, bounded by `Handle.send_nowait`; `Handle.follow_up` may pass the bound.
        self._send, self._receive = trio.open_memory_channel[MessageT](math.inf)
        self._questions: set[Reply[object]] = set()
        self._max_depth = 0
        self._num_received = 0
        self._num_refused = 0
        self._is_closed = False

    def __enter__(self) -> Inbox[MessageT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def receive(self) -> MessageT:
        """The next message. Cancellation takes none."""
        message = await self._receive.receive()
        self._num_received += 1
        return message

    def take_all(self) -> list[MessageT]:
        """Every message that is already here, without waiting."""
        messages: list[MessageT] = []
        for _ in range(self._receive.statistics().current_buffer_used):
            messages.append(self._receive.receive_nowait())  # noqa: PERF401 (may raise half-way)
        self._num_received += len(messages)
        return messages

    def close(self) -> None:
        """Refuse further messages and fail open questions. Idempotent."""
        self._is_closed = True
        self._receive.close()
        self._send.close()
        for question in tuple(self._questions):
            question.fail(self._unavailable())

    def statistics(self) -> InboxStatistics:
        """Counters and depth of this inbox."""
        depth = 0 if self._is_closed else self._receive.statistics().current_buffer_used
        return InboxStatistics(
            self.name, self.capacity, depth, self._max_depth, self._num_received, self._num_refused
        )

    def _put(self, message: MessageT, *, limit: float) -> None:
        if self._is_closed:
            raise self._unavailable()
        depth = self._receive.statistics().current_buffer_used
        if depth >= limit:
            self._num_refused += 1
            raise OverloadedError(f"the {self.name} is busy: {self.capacity} messages are waiting for it")
        self._max_depth = max(self._max_depth, depth + 1)
        self._send.send_nowait(message)

    def _unavailable(self) -> UnavailableError:
        return UnavailableError(f"the {self.name} has stopped; it is being restarted")


class Handle(Generic[MessageT]):
    """The sending end others hold. Typed handles wrap one; messages stay private behind them."""

    def __init__(self, inbox: Inbox[MessageT]) -> None:
        self._inbox = inbox

    def send_nowait(self, message: MessageT) -> None:
        """Send without waiting.

        Raises OverloadedError naming the actor if its inbox is full, UnavailableError if it has stopped.
        """
        self._inbox._put(message, limit=self._inbox.capacity)  # the two ends are one object in two faces

    def follow_up(self, message: MessageT) -> None:
        """Send what completes something the actor already admitted (abort, release, a step's result).

        Never refused, or it would leak; there is at most one per admitted thing, so the bound of what was
        admitted bounds it too. If the actor has stopped there is nothing left to complete: does nothing.
        """
        if not self._inbox._is_closed:
            self._inbox._put(message, limit=math.inf)

    async def call(self, make_message: Callable[[Reply[T]], MessageT]) -> T:
        """Send a message that holds a `Reply` and await its answer.

        Raises what the actor answers with, OverloadedError if the inbox is full, and UnavailableError if
        the actor stops before it answers. Cancellation does not take the message back.
        """
        reply: Reply[T] = Reply()
        questions: set[Reply[T]] = self._inbox._questions  # type: ignore[assignment]  # sets are invariant
        questions.add(reply)
        try:
            self.send_nowait(make_message(reply))
            return await reply.wait()
        finally:
            questions.discard(reply)


class Machine(Protocol[EventT_contra, EffectT_co]):
    """The one shape of our pure parts: events and the time in, effects and the next deadline out."""

    @property
    def deadline(self) -> float:
        """When `on_deadline` wants to be called; infinity for never."""

    def receive(self, event: EventT_contra, *, now: float) -> Iterable[EffectT_co]:
        """Take one event, give the effects to perform, in order."""

    def on_deadline(self, *, now: float) -> Iterable[EffectT_co]:
        """Take note that `deadline` has passed. Must move the deadline."""


async def drive(
    machine: Machine[EventT, EffectT],
    receive: Callable[[], Awaitable[EventT]],
    perform: Callable[[EffectT], Awaitable[None]],
) -> None:
    """Run a pure machine: wait for an event or its deadline, perform every effect, repeat.

    Ends when `receive` raises `trio.EndOfChannel`; other exceptions of `receive` and `perform` pass through.
    Cancellation while waiting takes no event (if `receive` is as atomic as `Inbox.receive`).
    """
    while True:
        event: EventT | None = None
        # One scope for as long as no deadline passes: making one costs more than most events do.
        with trio.CancelScope(deadline=machine.deadline) as scope:
            # Looked at behind every event, too: what is always there is received without a checkpoint.
            while trio.current_time() < machine.deadline:
                try:
                    event = await receive()
                except trio.EndOfChannel:
                    return
                if scope.cancel_called:
                    break  # the event and the deadline came together: nothing is performed in here any more
                scope.deadline = math.inf
                for effect in machine.receive(event, now=trio.current_time()):
                    await perform(effect)
                event = None
                scope.deadline = machine.deadline
        if event is not None:
            for effect in machine.receive(event, now=trio.current_time()):
                await perform(effect)
        deadline = machine.deadline
        if (now := trio.current_time()) >= deadline:
            for effect in machine.on_deadline(now=now):
                await perform(effect)
            assert machine.deadline > deadline, f"{machine!r} did not move its deadline {deadline}"
