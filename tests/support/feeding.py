"""Who feeds a request, chunk by chunk, and again from the beginning; and what it must be answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sensorium.protocols.engine.messages import InputChunk, Transduce, Transduced, TransduceRequest
from support.fake_transducer import FRAMES_PER_ROW, chunk_of


@dataclass
class Feeder:
    """Who feeds one request. `frames` are all of its input; a fork's begin with its parent's."""

    request: TransduceRequest
    frames: list[float]
    alone: Callable[[Transduce, Sequence[float]], Transduced]
    """What a whole input gives at once."""
    start: int = 0
    """Frames that it need not feed: a fork's, while it has its parent's state."""
    next: int = 0
    is_again: bool = False
    """Its next chunk says that it is the first."""
    has_ended: bool = False
    given: list[tuple[int, int]] = field(default_factory=list)
    """The longest answer so far: tokens and their frames."""

    @property
    def fails(self) -> bool:
        """Whether its input has what fails it."""
        return any(frame != frame for frame in self.frames)

    def begin_again(self, *, is_again: bool) -> None:
        """Feed all of it."""
        self.start = self.next = 0
        self.is_again, self.has_ended = is_again, False

    def forked(self, request: TransduceRequest, frames: list[float]) -> Feeder:
        """Of a request that goes on with `frames` behind what this one was fed so far."""
        fork = Feeder(request, self.frames[: self.next] + frames, self.alone)
        fork.start = fork.next = self.next
        return fork

    def draw_chunk(self, rng: random.Random) -> tuple[int, InputChunk]:
        """Some of what comes next, and where it ends."""
        end = min(self.next + rng.randint(1, 4), len(self.frames))
        is_last = end == len(self.frames) and (end == self.next or rng.random() < 0.7)
        num_padding = rng.choice([0, 0, 2]) if is_last else 0
        frames = self.frames[self.next : end]
        return end, chunk_of(frames, num_padding=num_padding, is_last=is_last, is_first=self.is_again)

    def fed(self, end: int, chunk: InputChunk) -> None:
        """What was drawn was taken."""
        self.next, self.has_ended, self.is_again = end, chunk.is_last, False

    def expected(self) -> list[tuple[int, int]]:
        """Its whole answer."""
        whole = self.alone(self.request.task, self.frames)
        both = zip(whole.token_ids, whole.frames, strict=True)
        return [(token, row) for token, row in both if row >= self.start // FRAMES_PER_ROW]

    def take(self, events: list[Transduced]) -> None:
        """What it was given since its input began last: the beginning of its answer."""
        found = [each for event in events for each in zip(event.token_ids, event.frames, strict=True)]
        assert found == self.expected()[: len(found)]
        rows = [event.num_frames for event in events]
        assert rows == sorted(rows)
        if not self.start:
            self.given = max(self.given, found, key=len)
            assert found == self.given[: len(found)], "what comes again is the same"
