"""Threads that leave processors to others: for long work beside that for which somebody waits.

On Linux every thread has a niceness of its own. Only a privileged one may take it back, so such a thread is
made for one piece of work; the one that asks, which does other work later, waits meanwhile.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeVar

_T = TypeVar("_T")

NICENESS: Final = 10
"""More than the process': a ninth of the time where others want all of it."""
_runner: Final[ContextVar[Callable[[Callable[[], object]], object] | None]] = ContextVar(
    "asked", default=None
)


def nicely(work: Callable[[], _T]) -> _T:
    """Do `work` in a nicer thread, or else in this one. Raises what it raises."""
    if sys.platform != "linux":
        return work()
    result: Future[_T] = Future()
    questions: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    has_begun = False

    def call(question: Callable[[], object]) -> object:
        answer: Future[object] = Future()
        questions.put(partial(_settle, answer, question))
        return answer.result()

    def run(ending: _Ending) -> None:
        nonlocal has_begun
        del ending  # an error that is kept would keep it with this frame
        has_begun = True
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS))
        _runner.set(call)
        _settle(result, work)

    try:
        # Not by `threading.Thread`: its `start` waits for ever for a thread that finds no memory to begin.
        _thread.start_new_thread(copy_context().run, (run, _Ending(questions)))
    except RuntimeError:  # the system gives no more
        return work()
    while (answer := questions.get()) is not None:
        answer()
    if not has_begun:
        return work()
    if not result.done():
        raise MemoryError("a thread ended before its work did")
    return result.result()


class _Ending:
    """What a thread holds alone: with it, however it ends, goes whoever waits for its questions."""

    def __init__(self, questions: SimpleQueue[Callable[[], None] | None]) -> None:
        self._questions = questions

    def __del__(self) -> None:
        self._questions.put(None)


def from_caller(question: Callable[[], _T]) -> _T:
    """The answer of `question`, called in the thread that asked for the work: it is known to its loop."""
    call = _runner.get()
    return question() if call is None else call(question)  # type: ignore[return-value]  # of any work


def _settle(future: Future[_T], work: Callable[[], _T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
