"""Voice activity of all live sessions, computed in batches off the loop.

A session's `VadStream` cuts its audio into frames and requests their scores. The actor takes the next few
frames of every waiting session, runs them through the network in one worker thread, and collects the next
batch meanwhile. A lone frame is scored at once; many frames cost the loop one hop. **Fair**: a session with
more frames than others continues in the next batch, after those that arrived meanwhile; pushed audio
(`realtime/turns/arrival.py`) is scored one session at a time, of each caller in turn. **Bounded**: a session
waits for one piece of audio at a time (`actors/live/audio.py`). The frames of one stream follow each other,
each with the state that the one before left, so scores do not depend on the batches.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import trio

from ...media.speech.voice_activity import FloatArray, FrameCutter, VoiceActivityModel, new_state, positioned
from ...protocols.engine.messages import Lane
from ...protocols.errors import InternalError
from ..runtime.actor import Handle, Inbox, Reply
from ..runtime.compute_pool import compute, working_for
from ..runtime.fair_semaphore import FairSemaphore

logger = logging.getLogger(__name__)

MAX_STREAMS: Final = 64
"""Sessions per batch; the others go first in the next one."""
MIN_FRAMES: Final = 4
"""Frames of one session per batch when many wait: appends of up to 0.1 s are done in one."""
BATCH_FRAMES: Final = 32
"""Frames of a batch when few wait, 3 ms of work; it is shared evenly."""
_REST: Final = 4.0
"""Pause behind a piece of pushed audio, in times of what it took: the loop is the others' in between."""
_MAX_REST_S: Final = 0.5
_INBOX_CAPACITY: Final = 1 << 16
"""More than there can be sessions, each of which waits for one answer."""


_LANE: Final = Lane("live", -3)
"""Before the finals of `actors/speech/model.py`: a turn begins and ends by what is heard."""


class VadStream(Protocol):
    """Scores one session's audio. One call at a time."""

    async def score(self, samples: FloatArray, *, is_pushed: bool = False) -> list[tuple[int, float]]:
        """`(end_sample, probability)` of every frame of 32 ms completed by `samples` [n], in order.

        Pushed audio, which comes faster than it is spoken, waits its turn.

        `end_sample` counts from the session's first sample. Waits only where a frame is complete. A stream
        whose call was cancelled is not gone on with.
        """
        ...

    def reset(self) -> None:
        """Forget the past audio. Positions go on counting."""
        ...


OpenVadStream = Callable[[str], VadStream]
"""A new stream of a caller (`Lane.caller`)."""


class _Frames:
    """Consecutive frames of one stream, the state in front of the next one, and the scores so far."""

    __slots__ = ("frames", "is_wanted", "reply", "scores", "state")

    def __init__(self, frames: Sequence[FloatArray], state: FloatArray) -> None:
        self.frames = frames
        self.state = state
        self.scores: list[float] = []
        self.reply = Reply[None]()
        """Without itself: a cycle for every piece of sound would be left to the garbage collector."""
        self.is_wanted = True

    def answering(self, reply: Reply[None]) -> _Frames:
        """Answer there."""
        self.reply = reply
        return self


class VoiceActivityActor:
    """Start `run` in a nursery; each session gets a stream from `open_vad_stream`."""

    def __init__(self, model: VoiceActivityModel) -> None:
        self._model = model
        self._inbox = Inbox[_Frames]("voice activity", _INBOX_CAPACITY)
        self._handle = Handle(self._inbox)
        self._pushed = FairSemaphore()

    def open_vad_stream(self, caller: str = "") -> VadStream:
        """A new stream. It holds nothing here while it does not wait for scores."""
        return _BatchedVadStream(self._handle, self._pushed, caller)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Then whoever waits gets UnavailableError."""
        waiting: deque[_Frames] = deque()
        with self._inbox, working_for(_LANE):
            task_status.started()
            while True:
                if not waiting:
                    waiting.append(await self._inbox.receive())
                waiting += self._inbox.take_all()
                batch = _next_batch(waiting)
                if not batch:
                    continue
                await self._score(batch)
                waiting += self._inbox.take_all()
                for work in batch:
                    if len(work.scores) < len(work.frames):
                        waiting.append(work)
                    else:
                        work.reply.set(None)

    async def _score(self, batch: Sequence[_Frames]) -> None:
        try:
            await compute(score, self._model, batch, max_wait_s=math.inf)
        except Exception:
            logger.exception("voice activity of %d sessions failed", len(batch))
            for work in batch:
                work.is_wanted = False
                work.reply.fail(InternalError("voice activity failed"))


class _BatchedVadStream:
    """One stream, scored by the actor."""

    def __init__(self, actor: Handle[_Frames], pushed: FairSemaphore, caller: str) -> None:
        self._actor = actor
        self._pushed = pushed
        self._caller = caller
        self._cutter = FrameCutter()
        self._state = new_state()

    async def score(self, samples: FloatArray, *, is_pushed: bool = False) -> list[tuple[int, float]]:
        """See `VadStream.score`. Raises UnavailableError when the actor stops."""
        if not is_pushed:
            return await self._score_frames(samples)
        async with self._pushed.held_by(self._caller):
            began = trio.current_time()
            scores = await self._score_frames(samples)
            await trio.sleep(min(_MAX_REST_S, _REST * (trio.current_time() - began)))
            return scores

    async def _score_frames(self, samples: FloatArray) -> list[tuple[int, float]]:
        first = self._cutter.num_samples
        frames = self._cutter.push(samples)
        if not frames:
            return []
        work = _Frames(frames, self._state)
        try:
            await self._actor.call(work.answering)
        finally:
            work.is_wanted = False
        self._state = work.state.copy()
        return positioned(first, work.scores)

    def reset(self) -> None:
        """See `VadStream.reset`."""
        self._state = new_state()
        self._cutter.reset()


def _next_batch(waiting: deque[_Frames]) -> list[_Frames]:
    """Take those out that go first; what nobody wants any more is dropped."""
    batch: list[_Frames] = []
    while waiting and len(batch) < MAX_STREAMS:
        work = waiting.popleft()
        if work.is_wanted:
            batch.append(work)
    return batch


def score(model: VoiceActivityModel, batch: Sequence[_Frames]) -> None:
    """Score the next few frames of every stream of the batch: the first of each at once, then the second."""
    for _ in range(max(MIN_FRAMES, BATCH_FRAMES // len(batch))):
        batch = [work for work in batch if len(work.scores) < len(work.frames)]
        if not batch:
            return
        frames = np.stack([work.frames[len(work.scores)] for work in batch])
        states = np.concatenate([work.state for work in batch], axis=1)
        probabilities, states = model.score(frames, states)
        for index, (work, probability) in enumerate(zip(batch, probabilities.tolist(), strict=True)):
            work.state = states[:, index : index + 1]
            work.scores.append(probability)
