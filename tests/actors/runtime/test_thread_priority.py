"""Nicer threads: what they work, and what becomes of work whose thread finds no memory."""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable

import pytest
from sensorium.actors.runtime.thread_priority import NICENESS, from_caller, nicely

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux"),
]


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def test_work_is_nicer_and_asks_its_caller() -> None:
    before = niceness()
    assert nicely(lambda: (niceness(), from_caller(niceness))) == (min(19, before + NICENESS), before)


def test_what_work_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        nicely(lambda: 1 / 0)


def test_a_thread_that_never_begins_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is no memory for its first frame: Python drops it, and says so on standard error."""
    monkeypatch.setattr(_thread, "start_new_thread", lambda begin, args: 0)
    assert nicely(niceness) == niceness()


def test_a_thread_that_ends_before_its_work_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    start = _thread.start_new_thread

    def refuse(*_: object) -> None:
        raise MemoryError

    def begin(function: Callable[..., object], args: tuple[object, ...]) -> int:
        monkeypatch.setattr(os, "setpriority", refuse)
        return start(function, args)

    monkeypatch.setattr(_thread, "start_new_thread", begin)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with pytest.raises(MemoryError):
        nicely(niceness)


def test_where_no_thread_is_given_the_caller_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert nicely(niceness) == niceness()
