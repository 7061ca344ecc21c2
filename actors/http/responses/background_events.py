"""The events of responses that are made in the background and streamed, to be read again from where a client
broke off: kept in memory, within bounds, by their numbers.

Each response's latest are kept, and where all together are too many, whoever keeps most loses those of its
oldest response. Frames are opaque here, but that they are numbered from 0 and end with an empty line. Read
next: `actors/http/responses/routes.py`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from itertools import islice
from typing import Final

import trio

from ....protocols.errors import BadRequestError
from ...callers import Caller, give_back, greediest
from ..event_stream import Put

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_BYTES_EACH: Final = 8 * 1024 * 1024
_FRAME_BYTES: Final = 64
"""Of one that says nothing."""
_END: Final = b"\n\n"


class EventLog:
    """The events of one response."""

    def __init__(self, owner: Caller) -> None:
        self.owner = owner
        self.num_bytes = 0
        self.is_done = False
        self._frames: deque[bytes] = deque()
        self._first = 0
        """The number of the first one that is kept."""
        self._changed = trio.lowlevel.ParkingLot()

    async def follow(self, after: int, put: Put) -> None:
        """Put all events behind number `after`, until there are no more. Raises BadRequestError if some are
        kept no more."""
        number = after + 1
        while True:
            if number < self._first:
                raise BadRequestError(
                    f"Events up to {self._first - 1} are no longer kept; send a later `starting_after`, or "
                    "no `stream` to get the response so far.",
                    param="starting_after",
                    code="events_not_kept",
                )
            for frame in islice(self._frames, number - self._first, None):
                put(frame)
                number += 1
            if self.is_done:
                return
            await self._changed.park()

    def close(self) -> None:
        """There are no more."""
        self.is_done = True
        self._changed.unpark_all()

    def append(self, frames: bytes, max_bytes: int) -> int:
        """Keep some more, and of all the latest of `max_bytes`; by how many bytes that grew."""
        before = self.num_bytes
        for frame in frames.split(_END)[:-1]:
            self._frames.append(frame + _END)
            self.num_bytes += _size(self._frames[-1])
        while self.num_bytes > max_bytes:
            self.num_bytes -= _size(self._frames.popleft())
            self._first += 1
        self._changed.unpark_all()
        return self.num_bytes - before

    def clear(self) -> int:
        """Keep none of what is there; how many bytes that was."""
        size, self.num_bytes = self.num_bytes, 0
        self._first += len(self._frames)
        self._frames.clear()
        return size


class EventBook:
    """The logs of one server, by the ids of their responses."""

    def __init__(self, *, max_bytes: int = MAX_BYTES, max_bytes_each: int = MAX_BYTES_EACH) -> None:
        self._max_bytes = max_bytes
        self._max_bytes_each = max_bytes_each
        self._logs: OrderedDict[str, EventLog] = OrderedDict()
        self._bytes: Counter[Caller] = Counter()

    def __len__(self) -> int:
        return len(self._logs)

    def check(self, first: bytes) -> None:
        """Raise BadRequestError for events that there is no room for, even alone."""
        if len(first) > self._max_bytes_each // 2:
            raise BadRequestError(
                f"Events of a background response are kept up to {self._max_bytes_each // 2**20} MiB, and "
                "those that repeat `tools` and `instructions` take most of it. Shorten them, or "
                "do not stream.",
                param="stream",
                code="events_not_kept",
            )

    def open(self, response_id: str, owner: Caller) -> EventLog:
        """A new one, to be closed."""
        log = self._logs[response_id] = EventLog(owner)
        return log

    def get(self, response_id: str) -> EventLog:
        """Raises BadRequestError where there is none."""
        log = self._logs.get(response_id)
        if log is None:
            raise BadRequestError(
                "No events of this response are kept: it was not created with `background` and `stream`, "
                "or they were dropped for newer ones. Request it without `stream`.",
                param="stream",
                code="events_not_kept",
            )
        return log

    def add(self, response_id: str, frames: bytes) -> None:
        """More of a response, if it was not forgotten."""
        log = self._logs.get(response_id)
        if log is None:
            return
        self._bytes[log.owner] += log.append(frames, self._max_bytes_each)
        while self._bytes.total() > self._max_bytes:
            greedy = greediest(self._bytes, log.owner)
            self._give_up(
                next(name for name, each in self._logs.items() if each.owner == greedy and each.num_bytes)
            )

    def close(self, response_id: str) -> None:
        """There is no more of a response."""
        log = self._logs.get(response_id)
        if log is not None:
            log.close()
            if not log.num_bytes:
                del self._logs[response_id]

    def forget(self, response_id: str) -> None:
        """Whoever reads it has no more of it."""
        log = self._logs.pop(response_id, None)
        if log is not None:
            self._release(log)
            log.close()

    def _give_up(self, response_id: str) -> None:
        log = self._logs[response_id]
        self._release(log)
        if log.is_done:
            del self._logs[response_id]

    def _release(self, log: EventLog) -> None:
        give_back(self._bytes, log.owner, log.clear())


def _size(frame: bytes) -> int:
    return _FRAME_BYTES + len(frame)
