"""One request that is fed while it runs: its chunks, its slot of states, and what it waits for.

Knows no other request but those that fork from it. Read `engine/planning/streaming_planner.py` next.
"""

from __future__ import annotations

from collections import deque

from ...protocols.engine.messages import InputChunk, TransduceRequest
from .plan import SequenceId, TransduceStep
from .policies.policy import Place
from .waits import Wait


class StreamingRequest:
    """Mutable state of one request.

    Its input is `num_fed` chunks so far: the first `num_planned` are run, or will be by plans in flight, and
    the others are `unread`. With a `slot` it is on the device; the states there are those behind
    `num_planned` chunks once all plans in flight are done. Without one it has run nothing of its input, or a
    fork has not begun.
    """

    __slots__ = (
        "arrival",
        "awaits_first",
        "fork_point",
        "forks",
        "group",
        "has_ended",
        "is_admitted",
        "is_fork",
        "last_fed",
        "line",
        "message",
        "num_fed",
        "num_frames",
        "num_frames_before",
        "num_in_flight",
        "num_planned",
        "order",
        "parent",
        "place",
        "priority",
        "request_id",
        "sequence_id",
        "slot",
        "task",
        "unread",
    )

    def __init__(
        self, message: TransduceRequest, place: Place, arrival: int, *, is_admitted: bool = False
    ) -> None:
        self.is_admitted = is_admitted  # as a part of another, and so not counted among those that wait
        self.message = message
        self.task = message.task
        self.request_id = message.request_id
        self.place = place
        self.arrival = arrival
        self.group, self.priority, _ = place
        self.line = (self.group, self.priority)
        self.order = (*self.line, arrival)
        self.awaits_first = False  # it was evicted, and is not fed again yet
        self.num_frames_before = 0  # frames answered before it was evicted last
        self.is_fork = False
        self.parent: StreamingRequest | None = None  # until the fork has its copy of the states
        self.fork_point = 0  # chunks of its parent that are in front of its own
        self.forks: list[StreamingRequest] = []  # those that wait for a copy
        self._forget()

    @property
    def is_idle(self) -> bool:
        """Whether it holds a slot and waits for input, with all answered that it had answered before."""
        waits = self.slot is not None and not self.unread and not self.num_in_flight
        return waits and self.num_frames >= self.num_frames_before

    @property
    def waits_for(self) -> Wait | None:
        """Its next input, or a slot of states (a fork: its parent's states); None: its turn."""
        if not self.unread:
            return None if self.num_in_flight else "input"
        return "slot" if self.slot is None else None

    @property
    def has_begun(self) -> bool:
        """Whether there is, or was planned or asked for, a state that a fork could copy."""
        return self.slot is not None or self.parent is not None or self.num_fed > 0

    def feed(self, chunk: InputChunk) -> None:
        """Its next input."""
        self.unread.append(chunk)
        self.num_fed += 1
        self.awaits_first = False
        self.has_ended = chunk.is_last

    def enter(self, sequence_id: SequenceId, slot: int) -> None:
        """Begin a stay on the device."""
        self.sequence_id, self.slot = sequence_id, slot

    def step(self) -> TransduceStep:
        """Plan the next chunk."""
        assert self.sequence_id is not None
        assert self.slot is not None
        chunk = self.unread.popleft()
        is_first = self.num_planned == 0 and not self.is_fork
        self.num_planned += 1
        self.num_in_flight += 1
        return TransduceStep(self.sequence_id, self.request_id, self.task, self.slot, chunk, is_first)

    def evict(self) -> None:
        """Lose the states, or the hope of a copy: all input is to be fed again."""
        self.num_frames_before = max(self.num_frames_before, self.num_frames)
        self.awaits_first = True
        self.is_fork = False
        self.parent = None
        self._forget()

    def _forget(self) -> None:
        self.unread: deque[InputChunk] = deque()
        self.num_fed = self.num_planned = self.num_in_flight = 0
        self.num_frames = 0  # answered in this stay
        self.last_fed = 0  # rises with every feeding of anybody
        self.has_ended = False  # the last chunk was fed
        self.sequence_id: SequenceId | None = None
        self.slot: int | None = None
