"""Sound that comes in containers: owns the processes that decode it, many sessions' streams in each.

A session holds a `Sound` and has it decode one piece after the other. A shard takes the pieces that wait, one
of each stream, to its process together, so that a thousand small ones cost the loop few hops; a stream that
has more goes on behind the others. **Contained**: each answer brings what the stream needs to go on
elsewhere. Where a process dies or does not answer in time, it is killed, and what was asked of it is asked
again one stream at a time: the one that does it again is refused, the others go on with their next packet.
**Bounded**: a piece is small (`actors/live/audio.py`), a turn decodes a few seconds
(`media/streams/decoder.py`), and a process that has grown is replaced. Read next: `media/streams/worker.py`.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

import numpy as np
import trio
import trio_parallel

from ...engine.control_groups import num_processors
from ...media.sandbox import within
from ...media.streams.sniff import begins_stream
from ...media.streams.worker import Answer, Batch, Request, decode_batch
from ...protocols.errors import InternalError, MediaError
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.container_format import StreamContainer
from ..media_decoding.workers import in_worker, open_workers
from ..runtime.actor import Handle, Inbox, Reply
from ..runtime.temp_files import in_own_folders, is_there
from ..runtime.threads import is_short, short_of
from .audio_store import Samples

logger = logging.getLogger(__name__)

_MAX_BATCH: Final = 32
"""Streams per job: with `MAX_TURN_SAMPLES` of each it stays within half a second."""
_INBOX_CAPACITY: Final = 1 << 16
"""More than there can be sessions, each of which waits for one answer."""
_START_S: Final = 60.0
"""How long a process may take to start."""
_DIED: Final = Answer(b"", problem="the process that decoded the stream was ended by it")


class Decoded(NamedTuple):
    """Samples [n], n perhaps 0, or [channels, n] if kept; whether more wait that need no further bytes."""

    samples: Samples
    has_more: bool


class Sound(Protocol):
    """One session's stream. One call at a time."""

    async def decode(self, data: bytes, *, is_first: bool = False, is_end: bool = False) -> Decoded:
        """What became final with `data`, or all that came if `is_end`. `is_first`: an append begins.

        Raises MediaError (param `audio`) where the stream is none, or breaks; then only an append that begins
        a stream is taken. UnavailableError at shutdown, InternalError for a defect of ours.
        """
        ...

    def close(self) -> None:
        """Nobody wants the stream any more."""
        ...


OpenSound = Callable[[StreamContainer, int], Sound]
"""Of so many channels: 1 mixes all there are, more are kept and have to be as many."""


def _default_workers() -> int:
    return max(1, num_processors() // 4)


@dataclass(frozen=True, slots=True)
class SoundConfig:
    """Bounds of the processes."""

    num_workers: int = field(default_factory=_default_workers)
    """One decodes some 500 streams."""
    deadline_s: float = 5.0
    """How long a batch may take, of processor time, too; it takes half a second at the most."""
    idle_s: float = 600.0
    """Seconds after which an unused process leaves."""
    max_worker_bytes: int = 4 * 1024**3
    """Address space of a process; it is replaced when half of it has been in use."""


@dataclass(frozen=True, slots=True)
class SoundStatistics:
    """Counters since start, and gauges now."""

    num_streams: int = 0
    """Streams that are open."""
    num_deaths: int = 0
    """Processes that died, or were killed for not answering."""
    decoded_s: float = 0.0
    """Seconds of sound that came out."""


class SoundActor:
    """Owns the processes. Start `run` in a nursery; sessions get a stream each from `open_sound`."""

    def __init__(self, config: SoundConfig | None = None) -> None:
        self.config = config or SoundConfig()
        self._shards = [_Shard(self.config) for _ in range(self.config.num_workers)]
        self._numbers = itertools.count()

    def open_sound(self, container: StreamContainer, num_channels: int = 1) -> Sound:
        """A new stream. Its process starts now, if there is none, so that its first piece need not wait."""
        shard = min(self._shards, key=lambda shard: shard.num_streams)
        return _Stream(shard, self._numbers, container, num_channels)

    def statistics(self) -> SoundStatistics:
        """Counters since start, and gauges now."""
        return SoundStatistics(
            num_streams=sum(shard.num_streams for shard in self._shards),
            num_deaths=sum(shard.num_deaths for shard in self._shards),
            decoded_s=sum(shard.num_samples for shard in self._shards) / INTERNAL_RATE,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Then whoever waits gets UnavailableError, and all processes are gone."""
        async with trio.open_nursery() as shards:
            for shard in self._shards:
                await shards.start(shard.run)
            task_status.started()


class _Work:
    """One request on its way, and where its answer goes."""

    __slots__ = ("data", "is_end", "reply", "stream")

    def __init__(self, stream: _Stream | None, data: bytes, *, is_end: bool) -> None:
        self.stream = stream
        self.data = data
        self.is_end = is_end
        self.reply: Reply[Answer] = Reply()

    def answering(self, reply: Reply[Answer]) -> _Work:
        """Answer there."""
        self.reply = reply
        return self


class _ProcessLostError(Exception):
    """The process died, or was killed because it did not answer."""


class _Shard:
    """One process, and the streams it decodes."""

    def __init__(self, config: SoundConfig) -> None:
        self._config = config
        self._inbox = Inbox[_Work]("decoding of sound", _INBOX_CAPACITY)
        self.handle = Handle(self._inbox)
        self._waiting: deque[_Work] = deque()
        self._limiter = trio.CapacityLimiter(1)
        self._task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        self._context: trio_parallel.WorkerContext | None = None
        self._process = b""
        """The one that answered last; empty: not known."""
        self.ended: list[int] = []
        """Streams that the process need not keep any more."""
        self.num_streams = 0
        self.num_deaths = 0
        self.num_samples = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        self._task_status = task_status
        with self._inbox:
            await in_own_folders(self._work)

    async def _work(self, folder: str) -> None:
        """Have a process in `folder`, to which it is confined for good, until that is removed."""
        waiting, self._process = self._waiting, b""
        async with open_workers(
            folder, idle_s=self._config.idle_s, max_bytes=self._config.max_worker_bytes
        ) as self._context:
            self._task_status.started()
            self._task_status = trio.TASK_STATUS_IGNORED
            while True:
                if not waiting:
                    waiting.append(await self._inbox.receive())
                waiting += self._inbox.take_all()
                if not is_there(folder):
                    break
                batch = [waiting.popleft() for _ in range(min(len(waiting), _MAX_BATCH))]
                await self._serve(batch)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _serve(self, batch: Sequence[_Work]) -> None:
        """Answer each; where the process is lost over them, one at a time."""
        works = [work for work in batch if work.stream is not None]
        try:
            answers = await self._request_all(works)
        except Exception as error:
            logger.exception("decoding of %d live streams failed", len(works))
            failed = short_of("process") if is_short(error) else InternalError("decoding the stream failed")
            for work in works:
                work.reply.fail(failed)
            return
        for work, answer in zip(works, answers, strict=True):
            work.reply.set(answer)

    async def _request_all(self, works: Sequence[_Work]) -> list[Answer]:
        try:
            return await self._decode_all(works)
        except _ProcessLostError:
            return [await self._request_alone(work) for work in works]

    async def _request_alone(self, work: _Work) -> Answer:
        try:
            return (await self._decode_all([work]))[0]
        except _ProcessLostError:
            logger.warning("a process died while it decoded a live stream; the stream is refused")
            return _DIED

    async def _decode_all(self, works: Sequence[_Work]) -> list[Answer]:
        """Raises _ProcessLostError; then none of it was done, as far as anybody knows."""
        answers: list[Answer] | None = None
        while answers is None:
            if not self._process:
                await self._run([], _START_S)
            answers = await self._run([self._request(work) for work in works], self._config.deadline_s)
        for work, answer in zip(works, answers, strict=True):
            assert work.stream is not None
            work.stream.state, work.stream.process = answer.state, self._process
            self.num_samples += len(answer.samples) // np.dtype(np.float32).itemsize
            if answer.defect:
                logger.error("decoding a live stream failed:\n%s", answer.defect)
        return answers

    async def _run(self, requests: Sequence[Request], deadline_s: float) -> list[Answer] | None:
        """One job; None if another process than the last one would have done it."""
        assert self._context is not None
        ended = tuple(self.ended)
        batch_job = partial(decode_batch, requests, ended, self._process)
        job = partial(within, deadline_s, batch_job)
        try:
            with trio.fail_after(deadline_s):
                batch: Batch = await in_worker(self._context, job, self._limiter)
        except (trio.TooSlowError, trio_parallel.BrokenWorkerError):
            self._process = b""
            self.num_deaths += 1
            raise _ProcessLostError from None
        del self.ended[: len(ended)]
        self._process = batch.process
        return batch.answers

    def _request(self, work: _Work) -> Request:
        stream = work.stream
        assert stream is not None
        is_known = stream.process == self._process
        return Request(
            stream.number,
            stream.container,
            stream.num_channels,
            b"" if is_known else stream.state,
            work.data,
            work.is_end,
        )


class _Stream(Sound):
    """One session's stream, decoded by a shard."""

    def __init__(
        self, shard: _Shard, numbers: itertools.count[int], container: StreamContainer, num_channels: int
    ) -> None:
        self._shard = shard
        self._numbers = numbers
        self.container = container
        self.num_channels = num_channels
        self.number = next(numbers)
        self.state = b""
        self.process = b""
        """Where the stream was last."""
        self._is_broken = False
        self._has_begun = False
        shard.num_streams += 1
        shard.handle.follow_up(_Work(None, b"", is_end=False))

    async def decode(self, data: bytes, *, is_first: bool = False, is_end: bool = False) -> Decoded:
        if self._is_broken and is_first and begins_stream(data, self.container):
            self._begin_again()
        if self._is_broken and data:
            raise MediaError(
                "the stream before this append is broken; only one that begins a new stream is taken",
                code="audio_stream_broken",
                param="audio",
            )
        if self._is_broken or not (data or self._has_begun):
            return Decoded(np.zeros(0, np.float32), False)
        self._has_begun = True
        answer = await self._shard.handle.call(_Work(self, data, is_end=is_end).answering)
        if answer.problem:
            self._is_broken = True
            if answer.defect:
                raise InternalError(answer.problem)
            code = "decoder_died" if answer is _DIED else "invalid_audio"
            raise MediaError(answer.problem, code=code, param="audio")
        samples = np.frombuffer(answer.samples, np.float32)
        shape = (-1,) if self.num_channels == 1 else (self.num_channels, -1)
        return Decoded(samples.reshape(shape), answer.has_more)

    def close(self) -> None:
        self._shard.ended.append(self.number)
        self._shard.num_streams -= 1

    def _begin_again(self) -> None:
        self._shard.ended.append(self.number)
        self.number = next(self._numbers)
        self.state = self.process = b""
        self._is_broken = self._has_begun = False
