"""One answer of a session that answers, as it grows: what both shells' `Answer` shows. Pure.

`client/realtime/conversation_machine.py` feeds it from the session's events; any number of readers may follow
it, each from its own place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from ...protocols.realtime.responses import ResponseUsage, ResponseView
from ..errors import APIError, SDKError
from ..options import MAX_QUEUED_EVENTS
from .events import AnswerDelta, AnswerDone, Event, FunctionCall

T = TypeVar("T")


class AnswerLog:
    """What is known of an answer."""

    def __init__(self, event_id: str = "", item_id: str = "") -> None:
        self.event_id = event_id
        """Of the wish for it; empty for an answer that the server began by itself."""
        self.item_id = item_id
        """The question's."""
        self.response_id: str | None = None
        self.pieces: list[str] = []
        """Its text so far."""
        self.response: ResponseView | None = None
        """As it ended."""
        self.error: APIError | None = None
        """It was refused, or its question was."""
        self.is_refused = False
        """It will not begin."""

    @property
    def is_over(self) -> bool:
        """Nothing more will come that is wanted. One whose question was refused is still begun by the server,
        and only then has a name to be cancelled by."""
        if self.response is not None or self.is_refused:
            return True
        return self.error is not None and self.response_id is not None

    @property
    def status(self) -> str:
        """in_progress, completed, incomplete, cancelled or failed."""
        if self.response is not None:
            return self.response.status
        return "in_progress" if self.error is None else "failed"

    def has_more(self, num_read: int) -> bool:
        """Whether a reader of so many pieces has something to read, or nothing to wait for."""
        return len(self.pieces) > num_read or self.is_over

    def take(self, event: Event) -> None:
        """An event of its response."""
        match event:
            case AnswerDelta(delta=delta):
                self.pieces.append(delta)
            case AnswerDone(response=response):
                self.response = response
                details = response.status_details
                if response.status == "failed" and details is not None and details.error:
                    fault = details.error
                    self.refuse(APIError(400, fault.code, None, fault.message or fault.code))
            case _:
                pass

    def refuse(self, error: APIError, event_id: str | None = None) -> None:
        """It is not worth waiting for, and if `event_id` was the wish for it, it will not begin; the first
        reason counts."""
        self.error = self.error or error
        self.is_refused |= event_id == self.event_id


class AnswerState:
    """What every shell shows of an answer."""

    def __init__(self, log: AnswerLog) -> None:
        self._log = log

    @property
    def status(self) -> str:
        """in_progress, completed, incomplete (too long), cancelled (interrupted) or failed."""
        return self._log.status

    @property
    def usage(self) -> ResponseUsage | None:
        """What was read and written, and how much of it was there already; None before its end, and
        where the model read nothing."""
        return None if self.response is None else self.response.usage

    @property
    def calls(self) -> list[FunctionCall]:
        """The tools that it calls, once it is over; not one that was cut off."""
        output = [] if self.response is None else self.response.output
        return [item for item in output if isinstance(item, FunctionCall) and item.status == "completed"]

    @property
    def response(self) -> ResponseView | None:
        """All that the server says of it, once it is over."""
        return self._log.response


class EventQueue(Generic[T]):
    """What `pick` makes of a session's events from now on, for one of its readers, for as long as there is
    one."""

    def __init__(self, readers: WeakSet[EventQueue[Any]], pick: Callable[[Event], T | None]) -> None:
        self._readers = readers
        self._pick = pick
        self._waiting: deque[T] = deque()
        self._is_full = False
        readers.add(self)

    def put(self, event: Event) -> None:
        """An event came. One who reads nothing any more is left alone."""
        picked = self._pick(event)
        if picked is None:
            return
        if len(self._waiting) < MAX_QUEUED_EVENTS:
            self._waiting.append(picked)
        else:
            self._is_full = True
            self._readers.discard(self)

    def has_more(self) -> bool:
        """Whether `take` has something to say."""
        return bool(self._waiting) or self._is_full

    def take(self) -> T:
        """The next. Raises SDKError if too many were not read."""
        if not self._waiting:
            raise SDKError(f"{MAX_QUEUED_EVENTS} were not read; later ones are lost")
        return self._waiting.popleft()
