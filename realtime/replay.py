"""The newest events of one session as they were sent, for a client that lost its socket.

Bounded in events and bytes: the oldest go first. While a client is connected that costs nothing but how far
back it may resume. While none is, an event that goes was never sent to anybody: then the session cannot be
resumed any more (`intact`). Knows frames and numbers, neither sockets nor time. `actors/live/session.py`
feeds it.
"""

from __future__ import annotations

from collections import deque

from ..protocols.errors import ClientError, wrong


class Replay:
    """Frames `first_seq` to `last_seq`; numbers start at 1 and grow by one."""

    def __init__(self, *, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._frames: deque[str] = deque()
        self._num_bytes = 0
        self.last_seq = 0
        self._unsent_from: int | None = None

    @property
    def first_seq(self) -> int:
        """Number of the oldest event kept; `last_seq + 1` if there is none."""
        return self.last_seq + 1 - len(self._frames)

    @property
    def intact(self) -> bool:
        """No event that was recorded while detached has been dropped."""
        return self._unsent_from is None or self.first_seq <= self._unsent_from

    def record(self, frame: str) -> None:
        """Keep the next event, and drop what is too old or too much."""
        self.last_seq += 1
        self._frames.append(frame)
        self._num_bytes += len(frame)
        while len(self._frames) > self._max_events or self._num_bytes > self._max_bytes:
            self._num_bytes -= len(self._frames.popleft())

    def detach(self) -> None:
        """Nobody is sent the events from here on."""
        if self._unsent_from is None:
            self._unsent_from = self.last_seq + 1

    def attach(self) -> None:
        """Somebody is sent the events again, those that are kept first."""
        self._unsent_from = None

    def since(self, after_seq: int) -> list[str]:
        """The frames after number `after_seq`, in order.

        Raises ClientError `resume_gap` if some of them are not kept any more, and BadRequestError for a
        number that was never sent.
        """
        if after_seq > self.last_seq:
            raise wrong("after_seq", f"is {after_seq}; the session has sent {self.last_seq} events")
        if after_seq + 1 < self.first_seq:
            raise ClientError(
                f"the events after {after_seq} are not kept any more; the oldest is {self.first_seq}",
                code="resume_gap",
                param="after_seq",
            )
        return list(self._frames)[after_seq + 1 - self.first_seq :]

    def check(self) -> None:
        """Assert the bounds and the sums."""
        assert len(self._frames) <= self._max_events
        assert self._num_bytes == sum(map(len, self._frames)) <= self._max_bytes
        assert 1 <= self.first_seq <= self.last_seq + 1
