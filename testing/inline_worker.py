"""A worker without a thread, for tests on trio's virtual clock: a job takes exactly `job_s` seconds of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


class InlineWorker:
    """Runs each job in its turn and gives the result after `job_s`, as a busy device would.

    The job with the number `hang` (from 0, the making of the runner) never ends, so none after it begins.
    """

    def __init__(self, job_s: float = 0.0, *, hang: int | None = None) -> None:
        self._job_s = job_s
        self._hang = hang
        self._num_jobs = 0
        self._free_at = 0.0
        self._is_closed = False

    def submit(
        self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]
    ) -> None:
        """See `actors/inference/executor.py`."""
        start = max(self._free_at, trio.current_time())
        self._free_at = start + self._job_s
        number = self._num_jobs
        self._num_jobs += 1

        async def work() -> None:
            await trio.sleep_until(start)
            if self._is_closed or (self._hang is not None and number >= self._hang):
                return
            try:
                result = job()
            except Exception as error:
                failed(error)
                return
            await trio.sleep_until(start + self._job_s)
            if not self._is_closed:
                done(result)

        trio.lowlevel.spawn_system_task(work)

    async def aclose(self, *, grace_s: float) -> None:
        """Nothing to wait for."""
        self._is_closed = True
        await trio.lowlevel.checkpoint()
