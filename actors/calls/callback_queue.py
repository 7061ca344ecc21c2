"""Owns what is posted of calls: who may have a callback, and that each has its time after its call.

A callback (`callbacks.py`) runs in a task here, so that neither the call nor its connection waits for it, and
counts for its caller from the call's beginning until nothing of it waits any more. **Bounded** as calls are:
by the rule that callers share places by (`actors/callers.py`). Read next: `realtime/calls/call.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import trio

from ...protocols.errors import OverloadedError
from ..callers import Caller, give_back, has_room
from ..config.calls import CallConfig
from ..fetching.dns import Names
from ..fetching.http_get import Connections
from .callbacks import Callback


@dataclass(slots=True)
class PostingStatistics:
    """Counters since start, and gauges now."""

    num_posted: int = 0
    num_dropped: int = 0
    num_posting: int = 0
    num_to_post: int = 0


class PostingActor:
    """The callbacks of a server's calls. `on_end` is called whenever one is done."""

    def __init__(
        self, config: CallConfig, names: Names, *, most: int, on_end: Callable[[], object] = lambda: None
    ) -> None:
        self.config = config
        self._connections = Connections(names, config.networks)
        self._most = most
        self._on_end = on_end
        self._callbacks: dict[Callback, Caller] = {}
        self._held: Counter[Caller] = Counter()
        self._done = PostingStatistics()
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        return len(self._callbacks)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the callbacks' tasks; cancelling drops what they have not posted."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def open(
        self,
        target: httpx.URL,
        caller: Caller,
        report_problem: Callable[[str, str], None],
        *,
        is_shared: bool = True,
    ) -> Callback:
        """A callback that posts until it is told `finish`, and on.

        Raises OverloadedError where the caller has no room for another one; `is_shared` as in `has_room`.
        """
        assert self._nursery is not None
        if not has_room(self._held[caller], len(self), self._most, is_shared=is_shared):
            raise OverloadedError(
                f"{self._held[caller]} of your callbacks are still being sent; {len(self)} of "
                f"{self._most} places are taken.",
                code="too_many_callbacks",
            )
        whose = caller.name if is_shared else ""
        callback = Callback(target, self.config, self._connections, report_problem, caller=whose)
        self._callbacks[callback] = caller
        self._held[caller] += 1
        self._nursery.start_soon(self._keep, callback)
        return callback

    def statistics(self) -> PostingStatistics:
        """Counters since start, and gauges now."""
        return PostingStatistics(
            self._done.num_posted + sum(each.num_posted for each in self._callbacks),
            self._done.num_dropped + sum(each.num_dropped for each in self._callbacks),
            len(self),
            sum(each.num_waiting for each in self._callbacks),
        )

    async def _keep(self, callback: Callback) -> None:
        try:
            await callback.run()
        finally:
            self._done.num_posted += callback.num_posted
            self._done.num_dropped += callback.num_dropped
            give_back(self._held, self._callbacks.pop(callback))
            self._on_end()
