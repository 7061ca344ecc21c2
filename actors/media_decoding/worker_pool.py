"""The decoder pool: owns the worker processes that decode untrusted files, and every bound on them.

A decoder library may crash, hang or eat memory on a hostile file. So decoding runs in processes that are
killed when the request is cancelled or takes too long, and whose memory is limited; whatever happens there
is one request's MediaError. What a worker runs is `media/worker.py`.

It is a pool and no actor: it has no inbox, because a message there would wait in the order it came. Callers
wait for a place in turn instead (`actors/runtime/fair_semaphore.py`), `max_waiting` bounds how many do, and
cancelling one ends its process at once. `sensorium_media_*` counts what `sensorium_inbox_*` counts of actors.
"""

from __future__ import annotations

import logging
import mmap
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import trio
import trio_parallel

from ...engine.control_groups import num_processors
from ...engine.memory_limits import shortage
from ...media.audio.decode import DecodedAudio, DecodeLimits, measure_audio, recognise
from ...media.sandbox import protections
from ...media.worker import decode_to_file, measure, on_file, vision_to_file, with_features
from ...protocols.engine.messages import MediaItems
from ...protocols.errors import InternalError, MediaError, OverloadedError, SensoriumError, UnavailableError
from ..callers import has_room
from ..runtime.fair_semaphore import FairSemaphore
from ..runtime.temp_files import disk_room, has_no_room, in_own_folders, is_there
from ..runtime.threads import in_thread, is_short, short_of
from .workers import in_worker, log_protections, open_workers

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

_SPARE_AFTER_S: Final = 1.0
"""Waiting for another's file, before one more process is worth its start."""
_AFTER_DEATH_S: Final = 5.0
"""When to try again what killed its worker: a machine without memory may have some by then."""
_NICENESS: Final = 10
"""Of files' decoders: speech, and the server itself, go first on the processors."""
_SILENCE_S: Final = 5.0
"""How much longer than its job may take a worker is waited for, which would have been ended by then: one that
does nothing is not the file's fault."""
_DEFAULT_LIMITS: Final = DecodeLimits()
"""Of who names no limits."""


def _default_workers() -> int:
    return max(1, num_processors() - 1)


@dataclass(frozen=True, slots=True)
class MediaConfig:
    """Bounds of the decoder pool, all above 0: an operator's are checked by `actors/config/files.py`."""

    max_workers: int = field(default_factory=_default_workers)
    """Files decoded at the same time; by default one core is left to the server. A caller that has none and
    waits for a second has one more."""
    max_waiting: int = 32
    """Files waiting for a worker, of which callers take turns; one more gets OverloadedError."""
    deadline_s: float = 60.0
    """Seconds that one job on a file may take in its worker."""
    cpu_s: float = 60.0
    """Seconds of processor time that one job on a file may take."""
    picture_cpu_s: float = 20.0
    """The same of a picture, and of what is read of a file before it is decoded: four times what the most
    laborious of 64 megapixels took."""
    idle_s: float = 600.0
    """Seconds after which an unused worker leaves."""
    max_worker_bytes: int = 4 * 1024**3
    """Address space of a worker. The result is copied once on its way, so allow 3 times the largest."""


@dataclass(slots=True)
class MediaStatistics:
    """Counters since start, and gauges now."""

    num_jobs: int = 0
    num_failed: int = 0
    """Jobs that ended in an error, the client's fault or ours."""
    num_killed: int = 0
    """Jobs whose worker was killed (deadline, cancellation) or died."""
    num_refused: int = 0
    """Requests turned away because the queue was full."""
    num_waiting: int = 0
    num_running: int = 0
    num_workers: int = 0
    """Processes alive, busy or idle."""
    decoded_s: float = 0.0
    """Seconds of audio decoded."""
    busy_s: float = 0.0
    """Seconds that jobs have spent in workers, summed."""


class DecoderPool:
    """Runs decode jobs in killable processes. Start `run` in a nursery; others hold `handle`."""

    def __init__(self, config: MediaConfig | None = None) -> None:
        self.config = config or MediaConfig()
        self.handle = MediaHandle(self)
        self._context: trio_parallel.WorkerContext | None = None
        self._folder = ""
        """Of the files that workers read and write, which see no others."""
        self._is_removed = trio.Event()
        """Somebody has removed it."""
        self._task_status: trio.TaskStatus[MediaHandle] = trio.TASK_STATUS_IGNORED
        self._are_protections_known = False
        self._places = FairSemaphore(self.config.max_workers, spare_after_s=_SPARE_AFTER_S)
        # trio-parallel wants a limiter too; a place is taken first, so that waiting is not on the deadline.
        self._inner_limiter = trio.CapacityLimiter(self.config.max_workers + 1)
        self._requests: set[trio.CancelScope] = set()
        self.counted = MediaStatistics()
        """Without gauges."""

    async def run(self, *, task_status: trio.TaskStatus[MediaHandle] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Then requests in flight get UnavailableError and all workers are gone."""
        self._task_status = task_status
        await in_own_folders(self._serve)

    async def _serve(self, folder: str) -> None:
        """Have workers in `folder`, to which they are confined for good, until it is removed."""
        self._folder, self._is_removed = folder, trio.Event()
        async with open_workers(
            folder,
            idle_s=self.config.idle_s,
            max_bytes=self.config.max_worker_bytes,
            niceness=_NICENESS,
        ) as context:
            self._context = context
            try:
                self._task_status.started(self.handle)
                self._task_status = trio.TASK_STATUS_IGNORED
                await self._is_removed.wait()
            finally:
                # Leaving the context waits for its jobs, so they are ended first.
                self._context = None
                for request in self._requests:
                    request.cancel()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def measure(
        self, data: bytes, measuring: Callable[[bytes], _T], what: str, patience: _Patience
    ) -> _T:
        """What a file will come to, by its headers, read in a worker."""
        async with self._place(patience):
            return await self._work(data, partial(measure, measuring, what), what, self._short_cpu_s)

    async def prepare_large(
        self,
        data: bytes,
        job: Callable[..., _T | SensoriumError],
        what: str,
        read: Callable[[_T, str], _T],
        patience: _Patience,
    ) -> _T:
        """What `job` makes of a file in a worker; `read` puts back what is large, from another file."""
        cpu_s = self._short_cpu_s if what == "image" else self.config.cpu_s
        async with self._place(patience):
            with self._in_folder(), self._file() as target:
                named = partial(job, path=os.path.basename(target.name))
                outcome = await self._work(data, named, what, cpu_s)
                return await in_thread(read, outcome, target.name, limiter=self._inner_limiter)

    @asynccontextmanager
    async def _place(self, patience: _Patience) -> AsyncIterator[None]:
        """A worker's time; who waits for it has no file of ours. Raises OverloadedError, UnavailableError."""
        caller = patience.caller
        self._check_waiting(caller)
        begun = trio.current_time()
        with trio.CancelScope() as request:
            self._requests.add(request)
            try:
                async with self._places.held_by(caller, waited_s=patience.waited_s):
                    patience.waited_s += trio.current_time() - begun
                    yield
            finally:
                self._requests.discard(request)
        if request.cancelled_caught:
            raise UnavailableError("Decoding of files was stopped.")

    @property
    def _short_cpu_s(self) -> float:
        return min(self.config.picture_cpu_s, self.config.cpu_s)

    async def _work(
        self, data: bytes, job: Callable[[bytes], _T | SensoriumError], what: str, cpu_s: float
    ) -> _T:
        """Run `job` in a worker, which reads the data from a file."""
        with self._in_folder(), self._file() as source:
            await in_thread(Path(source.name).write_bytes, data, limiter=self._inner_limiter)
            real_s = self.config.deadline_s
            work = partial(on_file, job, os.path.basename(source.name), cpu_s=cpu_s, real_s=real_s)
            return await self._try_job(work, what, cpu_s)

    def _check_waiting(self, caller: str) -> None:
        num, most = self._places.num_waiting, self.config.max_waiting
        num_own = self._places.num_waiting_of(caller)
        if not self._places.is_full or has_room(num_own, num, most, is_shared=bool(caller)):
            return
        self.counted.num_refused += 1
        whose = f"{num} files" if num >= most else f"{num_own} of your files"
        raise OverloadedError(f"{whose} are waiting to be decoded; the limit is {most}.")

    @contextmanager
    def _in_folder(self) -> Iterator[None]:
        """Raises OverloadedError for what has no room, UnavailableError for what fails without its folder."""
        folder = self._folder
        try:
            with disk_room():
                yield
        except Exception as error:
            if isinstance(error, UnavailableError) or is_there(folder):
                raise
            if folder == self._folder:
                self._is_removed.set()
            raise UnavailableError("The server's folder for files was removed; try again.") from error

    def _file(self) -> tempfile._TemporaryFileWrapper[bytes]:
        """An empty one that workers may read and write, by its name: they work in its folder."""
        if self._context is None:
            raise UnavailableError("Decoding of files is not running.")
        return tempfile.NamedTemporaryFile(dir=self._folder)

    async def _try_job(self, job: Callable[[], _T | SensoriumError], what: str, cpu_s: float) -> _T:
        """Run a job again, once, where its worker dies: of what the machine ran out of, most often."""
        try:
            return await self._run_job(job, what)
        except trio_parallel.BrokenWorkerError as error:
            _check_time(error, what, cpu_s)
            logger.warning("a worker died while it decoded; the %s is tried again", what)
        try:
            return await self._run_job(job, what)
        except trio_parallel.BrokenWorkerError as error:
            _check_time(error, what, cpu_s)
            logger.error("two workers died while they decoded one %s", what)
            raise OverloadedError(
                f"The process that decoded the {what} was ended; try again later.",
                code="decoder_died",
                param=what,
                retry_after_s=_AFTER_DEATH_S,
            ) from None

    async def _run_job(self, job: Callable[[], _T | SensoriumError], what: str) -> _T:
        if self._context is None:
            raise UnavailableError("Decoding of files is not running.")
        self.counted.num_jobs += 1
        start = trio.current_time()
        outcome: _T | SensoriumError
        try:
            with trio.fail_after(self.config.deadline_s + _SILENCE_S):
                outcome = await in_worker(self._context, job, self._inner_limiter)
        except trio.TooSlowError:
            self.counted.num_killed += 1
            raise trio_parallel.BrokenWorkerError("it did nothing, and was killed") from None
        except (trio_parallel.BrokenWorkerError, trio.Cancelled):
            self.counted.num_killed += 1
            raise
        except Exception as error:
            self.counted.num_failed += 1
            if has_no_room(error):
                raise
            if is_short(error):
                logger.error("no process can be started that decodes the %s: %s", what, error)
                error.__traceback__ = error.__context__ = None  # frames hold pipes of what was not started
                raise short_of("process") from error
            if shortage(error) is not None:
                logger.error("no memory is left to decode the %s: %s", what, error or "none was given")
                raise short_of("memory") from error
            logger.error("decoding the %s failed", what, exc_info=error)
            raise InternalError(f"Decoding the {what} failed unexpectedly.") from error
        finally:
            self.counted.busy_s += trio.current_time() - start
        if isinstance(outcome, SensoriumError):
            self.counted.num_failed += 1
            raise outcome
        if not self._are_protections_known:
            await self._report_protections()
        return outcome

    async def _report_protections(self) -> None:
        """Once, as soon as a worker can say it. The file is decoded: whatever fails here is not its error."""
        if self._context is None:
            return
        self._are_protections_known = True
        try:
            with trio.fail_after(_SILENCE_S):
                held = await in_worker(self._context, protections, self._inner_limiter)
        except Exception:
            self._are_protections_known = False  # the next file's worker is asked
            return
        log_protections(held)

    def statistics(self) -> MediaStatistics:
        """Counters since start, and gauges now."""
        workers = self._context.statistics() if self._context is not None else None
        return replace(
            self.counted,
            num_waiting=self._places.num_waiting,
            num_running=self._places.num_held,
            num_workers=workers.idle_workers + workers.running_workers if workers else 0,
        )


def _check_time(error: trio_parallel.BrokenWorkerError, what: str, cpu_s: float) -> None:
    """Raise MediaError if the worker's time was up: trying again would take as long."""
    code = getattr(error.args[-1], "exitcode", None)
    if code == -signal.SIGXCPU:
        message = f"Decoding the {what} took too much processor time: the limit is {cpu_s:g} s."
        raise MediaError(message, param=what) from None
    if code == -signal.SIGALRM:
        raise MediaError(f"Decoding the {what} took too long.", param=what) from None


def _with_samples(audio: DecodedAudio, path: str) -> DecodedAudio:
    """Samples that are not read but mapped: the file may then be deleted."""
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    shape = (*audio.samples.shape[:-1], -1)
    return replace(audio, samples=np.frombuffer(mapped, np.float32).reshape(shape))


def _replaced_text(video: MediaItems) -> str:
    return ", ".join(
        f"{each.wanted_s:.2f} s: " + ("nothing" if each.shown_s is None else f"{each.shown_s:.2f} s")
        for each in video.replaced
    )


@dataclass(slots=True)
class _Patience:
    """Of one file, which is measured and then opened: how long it has waited for both. After a second there
    is one place more for it, not after a second each."""

    caller: str
    waited_s: float = 0.0


class MediaHandle:
    """What others hold of the decoder pool. Each of its callers waits in turn."""

    def __init__(self, pool: DecoderPool, caller: str = "") -> None:
        self._pool = pool
        self._patience = _Patience(caller)

    def of(self, caller: str) -> MediaHandle:
        """A handle for one file of a caller (`Lane.caller`)."""
        return MediaHandle(self._pool, caller)

    async def measure(self, data: bytes, measuring: Callable[[bytes], _T], what: str) -> _T:
        """What a file will come to, by its headers, read in a worker process. Raises as `decode` does (param
        `what`)."""
        return await self._pool.measure(data, measuring, what, self._patience)

    async def measure_audio(
        self,
        data: bytes,
        *,
        limits: DecodeLimits = _DEFAULT_LIMITS,
        are_channels_kept: bool = False,
        track: int | None = None,
    ) -> float:
        """Seconds a file will decode to, as far as it can be told. Raises as `decode` does."""
        recognise(data, limits)
        measuring = partial(measure_audio, limits=limits, are_channels_kept=are_channels_kept, track=track)
        return await self.measure(data, measuring, "file")

    async def decode(
        self,
        data: bytes,
        *,
        limits: DecodeLimits = _DEFAULT_LIMITS,
        are_channels_kept: bool = False,
        track: int | None = None,
    ) -> DecodedAudio:
        """Decode a file in a worker process. Its format is read from its bytes, never from its name.

        Its channels are mixed unless they are kept, and one of its tracks is chosen, see `decode_audio`.
        Raises MediaError (param `file` or `audio_track`), TooLargeError (`file`), OverloadedError when too
        many requests wait, the disk is full or workers die, UnavailableError at shutdown, InternalError for
        a defect of ours. Cancellation kills the worker at once.
        """
        recognise(data, limits)
        job = partial(decode_to_file, limits=limits, are_channels_kept=are_channels_kept, track=track)
        audio = await self._pool.prepare_large(data, job, "file", _with_samples, self._patience)
        self._pool.counted.decoded_s += audio.duration_s
        return audio

    async def prepare(self, data: bytes, prepare: Callable[[bytes], MediaItems], what: str) -> MediaItems:
        """Make an image's or a video's features in a worker process. Raises as `decode` does (param
        `what`)."""
        job = partial(vision_to_file, prepare=prepare, param=what)
        media = await self._pool.prepare_large(data, job, what, with_features, self._patience)
        if media.replaced:
            logger.info(
                "a video is damaged; shown in place of what does not decode: %s", _replaced_text(media)
            )
        return media

    def statistics(self) -> MediaStatistics:
        """Counters since start, and gauges now."""
        return self._pool.statistics()
