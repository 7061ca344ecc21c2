"""Ctrl-C and SIGTERM while there is nothing to give back yet: the process ends at once, and says nothing.

While packages are imported an exception in their midst may be swallowed or shown, and a download or a model
being read runs in threads that nobody can stop; so no exception is raised, and no thread is waited for.
Imports next to nothing itself: until it is in force, Ctrl-C shows a traceback.
"""

from __future__ import annotations

import os
import signal


def leave(number: int, _: object = None) -> None:
    """End the process as the signal would have it: 130 for SIGINT, 143 for SIGTERM."""
    os._exit(128 + number)


class LeavingAtOnce:
    """A context of the main thread: `leave` on a signal, unless the process was told to ignore it."""

    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, leave)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
