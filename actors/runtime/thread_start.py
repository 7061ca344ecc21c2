"""Threads whose start fails where it would wait for ever.

A thread needs memory for its first frame. Where there is none Python drops the thread, and
`threading.Thread.start` waits for it for ever: trio starts its threads in the loop, so that a moment without
memory made the whole server deaf. Here such a start raises RuntimeError, as it does where the system gives no
thread, and `actors/runtime/threads.py` tries again.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import Any, Final

import trio._core._thread_cache as thread_cache

_POLL_S: Final = 0.01
"""Between two looks whether a thread that has not begun is still there. Most begin within 0.1 ms."""


class StartingThread(threading.Thread):
    """A thread whose start raises RuntimeError if the thread ends before it begins."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (as threading.Thread)
        super().__init__(*args, **kwargs)
        self._started: _Started = _Started()

    @property
    def _bootstrap(self) -> partial[None]:
        """What the new thread calls, and alone holds. Nothing of it needs a frame of the new thread."""
        begin = partial(super()._bootstrap)  # type: ignore[misc]  # of threading.Thread
        self._started.begin = weakref.ref(begin)
        return begin

    def start(self) -> None:
        """See `threading.Thread.start`."""
        try:
            super().start()
        except RuntimeError:
            threading._limbo.pop(self, None)  # type: ignore[attr-defined]  # else it would be listed for good
            raise


class _Started(threading.Event):
    """Set by a thread as it begins."""

    begin: weakref.ref[partial[None]] | None = None

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Event.wait`. Raises RuntimeError once the thread has ended without beginning."""
        if timeout is not None:
            return super().wait(timeout)
        while not super().wait(_POLL_S):
            if self.begin is not None and self.begin() is None and not self.is_set():
                raise RuntimeError("can't start new thread: there is no memory for it to begin")
        return True


def use_in_trio() -> None:
    """Have trio start its threads so."""
    thread_cache.Thread = StartingThread  # type: ignore[attr-defined]  # which it imports for itself
