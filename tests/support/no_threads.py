"""A system that starts no thread: Python says so where a container's or a user's limit is reached."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio


def refusing_threads(monkeypatch: pytest.MonkeyPatch, *, until_s: float) -> list[float]:
    """Let trio start none before a time of its clock; the times at which one was wanted."""
    start, refused = trio.lowlevel.start_thread_soon, list[float]()

    def refuse(
        work: Callable[[], object], deliver: Callable[[object], object], name: str | None = None
    ) -> None:
        if trio.current_time() >= until_s:
            start(work, deliver, name)
            return
        refused.append(trio.current_time())
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("trio._threads.start_thread_soon", refuse)
    return refused
